"""``fl_platform.run`` and what it returns."""

import json
import signal
import threading

import numpy as np
import pytest
import torch

import fl_platform as fl
from fl_platform.algorithms.gradma import GradMA, JointQPOptions
from fl_platform.config.compose import compose
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.resolve import resolve
from fl_platform.config.short_forms import keys_of
from fl_platform.data.prepare import prepare
from fl_platform.data.sets.images import Digits
from fl_platform.errors import UserCodeError
from fl_platform.runs import checkpoint_files
from fl_platform.runs.checkpoint_files import best_files, round_of


class Unnamed(GradMA):
    pass


class Flat(torch.nn.Sequential):
    def __init__(self, hidden=8):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, hidden), torch.nn.Linear(hidden, 10))


SMALL = {"num_workers": 10, "cohort_size": 3, "local_steps": 1, "num_rounds": 3, "trainer.enable_progress_bar": False}
OFF = {**SMALL, "tracking.mode": "disabled"}


def accuracy(model, dataset="digits", scale=1):
    _, test = prepare(compose([f"data.name={dataset}"]))
    images = test.features if scale == 1 else test.features / scale
    return float((model(images).argmax(1) == test.labels).double().mean())


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    keys = {"output": {"dir": tmp_path_factory.mktemp("runs")}, "algorithm.mu": 0.1, "checkpoint.keep_best": True}
    return fl.run({**OFF, **keys}, data="digits", omega=np.float64(0.5), algorithm="fedprox", model="mlp", num_rounds=6)


def test_keys_are_given_as_keywords_dotted_or_nested_and_in_short(result):
    config = fl.load_runs(result).summary.iloc[0]
    assert (config["data.name"], config["data.dirichlet_omega"], config["algorithm.name"]) == ("digits", 0.5, "fedprox")
    assert (config["algorithm.mu"], config["model.name"], config["num_rounds"]) == (0.1, "mlp", 6)


def test_it_is_the_run_of_the_command_line(result):
    arguments = [f"{key}={value}" for key, value in OFF.items() if key != "num_rounds"]
    arguments += ["algorithm.name=fedprox", "algorithm.mu=0.1", "data.dirichlet_omega=0.5", "num_rounds=6"]
    assert result.run_id == result.directory.name == resolve(compose(arguments)).run_id


def test_classes_stand_for_their_names_and_an_algorithm_for_its_fields():
    gradma = GradMA(memory_size=5, qp=JointQPOptions(worker_margin=0.1))
    given = {"data": Digits, "model": Flat, "algorithm": gradma}
    assert keys_of(None, given) == {
        "data.name": "digits",
        "model.name": f"{__name__}.Flat",
        "algorithm.name": "gradma",
        "algorithm.memory_size": 5,
        "algorithm.qp.worker_margin": 0.1,
    }
    assert keys_of(None, {"algorithm": GradMA}) == {"algorithm.name": "gradma"}


def test_the_result_has_summary_rounds_and_directory(result):
    stored = json.loads((result.directory / "result.json").read_text())
    assert stored.items() >= result.summary.items()
    assert stored.keys() - result.summary.keys() == {"attempt", "checksum"}
    assert result.rounds["round"].tolist() == [1, 2, 3, 4, 5, 6]
    assert result.rounds["test/accuracy"].max() == result.summary["test/top_accuracy"]
    assert (result.status, result.wandb_url, result.wandb_directory) == ("finished", None, None)
    top, at = result.summary["test/top_accuracy"], result.summary["test/top_accuracy_round"]
    assert repr(result) == f"<Result: finished, 6 rounds, top accuracy {top:.4f} in round {at}; {result.directory}>"


@pytest.mark.parametrize("scale", [1, 255])
@pytest.mark.parametrize("which", ["best", "last"])
def test_the_model_takes_raw_images_and_scores_what_was_logged(which, scale, result):
    """uint8 in 0..255 and floating point in [0, 1]."""
    model = result.model(which)
    assert not model.training
    logged = {"best": "test/top_accuracy", "last": "test/final_accuracy"}[which]
    assert accuracy(model, scale=scale) == result.summary[logged]


def test_another_model_than_best_and_last_is_refused(result):
    with pytest.raises(fl.UserError, match=r"which=first is not allowed; allowed: best \| last"):
        result.model("first")


def test_the_model_of_a_method_that_scores_another_than_the_servers(tmp_path):
    keys = {"algorithm.evaluated": "active_mean", "output.dir": tmp_path}
    result = fl.run({**OFF, **keys}, algorithm="feddyn")
    assert accuracy(result.model()) == result.summary["test/final_accuracy"]
    assert result.rounds["test/server_accuracy"].iloc[-1] != result.summary["test/final_accuracy"]


def test_a_model_that_was_not_kept_is_one_sentence(tmp_path):
    result = fl.run(OFF, output={"dir": tmp_path}, checkpoint={"keep_finished": False})
    with pytest.raises(fl.UserError, match=r"runs with checkpoint\.keep_best=true do"):
        result.model("best")
    with pytest.raises(fl.UserError, match="has no checkpoint left"):
        result.model("last")
    with pytest.raises(fl.UserError, match="is not the directory of a run"):
        fl.load_model(tmp_path / "nowhere")


def test_the_best_model_stays_where_checkpoints_are_dropped(tmp_path):
    result = fl.run(OFF, output={"dir": tmp_path}, checkpoint={"keep_finished": False, "keep_best": True})
    [kept] = result.directory.rglob("*.ckpt")
    assert round_of(kept) == result.summary["test/top_accuracy_round"]
    assert accuracy(result.model("best")) == result.summary["test/top_accuracy"]


def test_a_damaged_best_model_is_not_loaded(tmp_path):
    result = fl.run(OFF, output={"dir": tmp_path}, checkpoint={"keep_best": True})
    [path] = best_files(result.attempt / "checkpoints")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(fl.UserError, match="did not keep its best model"):
        result.model("best")


def test_the_best_model_of_a_resumed_run_is_that_of_an_undisturbed_one(tmp_path):
    class Stops(fl.Algorithm, name="stops"):
        def begin_round(self, workers, round):
            if round == 4 and not (tmp_path / "stopped").exists():
                (tmp_path / "stopped").touch()
                raise RuntimeError("killed")

    keys = {
        **OFF,
        "output.dir": tmp_path,
        "checkpoint.keep_best": True,
        "checkpoint.every": 2,
        "algorithm.name": "stops",
    }
    try:
        with pytest.raises(UserCodeError, match=r"begin_round .*killed"):
            fl.run(keys, num_rounds=6)
        resumed = fl.run(keys, num_rounds=6, reuse=True)
        whole = fl.run(keys, num_rounds=6, output={"dir": tmp_path / "whole"})
    finally:
        ALGORITHMS._entries.pop("stops")
    [[first], [second]] = (best_files(one.attempt / "checkpoints") for one in (resumed, whole))
    assert round_of(first) == round_of(second)
    assert torch.equal(torch.load(first, weights_only=True)["params"], torch.load(second, weights_only=True)["params"])


def test_a_second_run_in_the_same_process_and_a_thread_equal_the_first(tmp_path):
    """With W&B offline; signal handlers are left as they were."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    keys = {**SMALL, "output.dir": tmp_path}
    results = [fl.run(keys), fl.run(keys)]
    thread = threading.Thread(target=lambda: results.append(fl.run(keys)))
    thread.start()
    thread.join()
    assert len({one.summary["fingerprint"] for one in results}) == 1
    assert len(list(tmp_path.glob("wandb/*offline-run-*/*.wandb"))) == 3, "each start has its log"
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 1, "and only the last is there to be synced"
    assert all(len(one.rounds) == 3 for one in results), "also of attempts that were replaced"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    logs = fl.load_runs(tmp_path / "wandb")
    assert (len(logs.runs), logs.rounds["round"].tolist()) == (1, [1, 2, 3])


def test_reuse_returns_what_is_stored(tmp_path, monkeypatch):
    first = fl.run(OFF, output={"dir": tmp_path})
    monkeypatch.setattr("fl_platform.federation.api.launch", lambda *args: pytest.fail("it was run again"))
    again = fl.run(OFF, output={"dir": tmp_path}, reuse=True)
    assert again.summary == first.summary
    assert again.rounds["round"].tolist() == [1, 2, 3]
    values = [torch.nn.utils.parameters_to_vector(one.model().parameters()) for one in (first, again)]
    assert torch.equal(*values)


@pytest.mark.parametrize(
    ("config", "keys", "message"),
    [
        (None, {"nonsense": 1}, "run: unknown key 'nonsense'"),
        ({"data": {"name": "digits"}, "data.name": "mnist"}, {}, "data.name is given twice"),
        (["num_rounds=3"], {}, "is not a mapping of configuration keys"),
        (None, {"algorithm": "fedavgg"}, "did you mean 'fedavg'"),
        (None, {"data": 3}, "data=3 has the wrong type; data is a group of keys"),
        (None, {"num_rounds": "many"}, "num_rounds=many has the wrong type; expected"),
        (
            None,
            {"algorithm": Unnamed},
            r'algorithm=Unnamed has no name of its own; write class Unnamed\(..., name="unn',
        ),
        (None, {"algorithm": GradMA(memory_size=-1)}, r"algorithm\.memory_size=-1 is not allowed; it must be"),
        (None, {"model": torch.nn.Linear(64, 10)}, "model is a Linear that is built already; give the class"),
        (
            None,
            {"model": type("Inner", (), {"__qualname__": "f.<locals>.Inner"})},
            "model=Inner is defined in a function",
        ),
        (None, {"resume": "x", "reuse": True}, "resume and reuse do not go together"),
        (None, {"resume": "0123456789ab"}, "no checkpoint below"),
        (None, {"data": "cifar10", "data.root": "/nowhere"}, "data.name=cifar10 is not there"),
    ],
)
def test_bad_input_is_a_user_error_and_no_exit(config, keys, message, tmp_path, monkeypatch):
    monkeypatch.setenv("FL_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(fl.UserError, match=message):
        fl.run(config, **{"output.dir": str(tmp_path), "tracking.mode": "disabled", **keys})


def test_a_best_model_is_no_checkpoint_to_go_on_from(result):
    [path] = best_files(result.attempt / "checkpoints")
    assert path not in [found for _, found in checkpoint_files.sorted_checkpoints(path.parent)]
