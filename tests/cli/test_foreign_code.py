"""Which code a run may start: only code that the command line names, and of a model's path only an nn.Module class."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import fl_platform as fl
from fl_platform.cli import main
from fl_platform.dashboard.sweeps import read_sweep
from fl_platform.errors import UserError
from fl_platform.federation import named_code
from fl_platform.federation.module import FederatedModule
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import file_name, newest_valid
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.trials import make_trial
from tests.sweeps.small_sweeps import quick_sweep

SMALL = ["num_workers=4", "cohort_size=2", "num_rounds=2", "local_steps=1", "checkpoint.every=1"]
QUIET = ["tracking.mode=disabled", "trainer.enable_progress_bar=false", "data.dirichlet_omega=10"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of two rounds of a plain run."""
    output = tmp_path_factory.mktemp("runs")
    assert main(["run", *SMALL, *QUIET, f"output.dir={output}"]) == 0
    return next(output.glob("*/attempts/0001/checkpoints/round-000001-*.ckpt"))


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that the module ``intruder`` in the working directory creates when it is imported."""
    monkeypatch.setattr(named_code, "_trusted", set())  # nothing was named in this process before
    (tmp_path / "intruder.py").write_text("open('marker', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "marker"
    sys.modules.pop("intruder", None)


def forged(source: Path, folder: Path, **changes: Any) -> Path:
    """A checkpoint with other values in its configuration, None for keys left out; its name matches its content."""
    loaded = torch.load(source, weights_only=True)
    config = json.loads(loaded["federated"]["config"])
    for key, value in changes.items():
        group, _, name = key.rpartition("__")
        place = config[group] if group else config
        place[name] = value
        if value is None:
            del place[name]
    loaded["federated"]["config"] = json.dumps(config)
    path = folder / "r" / "attempts" / "0001" / "checkpoints" / "x.ckpt"
    path.parent.mkdir(parents=True)
    (path.parents[1] / "rounds.jsonl").touch()
    torch.save(loaded, path)
    return path.rename(path.with_name(file_name(1, path)))


def test_a_checkpoint_cannot_have_a_function_called(checkpoint: Path, marker: Path, capsys) -> None:
    options = {"command": f"touch {marker}"}
    path = forged(checkpoint, marker.parent, model__name="os.system", model__options=options)
    assert main(["run", "--resume", str(path)]) == 2
    assert "the checkpoint names code to import" in capsys.readouterr().err
    assert main(["run", "--resume", str(path), "model.name=os.system"]) == 2
    assert "model.name=os.system is not a class derived from torch.nn.Module" in capsys.readouterr().err
    assert not marker.exists()


def test_a_checkpoint_cannot_have_a_plugin_imported_unless_it_is_given_again(checkpoint, marker, capsys) -> None:
    path = forged(checkpoint, marker.parent, plugins=["intruder"])
    assert main(["run", "--resume", str(path)]) == 2
    assert "give it again: plugins=['intruder']" in capsys.readouterr().err
    assert main(["run", "--resume", str(path), "plugins=[other]"]) == 2
    assert not marker.exists()
    assert main(["run", "--resume", str(path), "plugins=[intruder]", *QUIET[1:2]]) == 0
    assert marker.exists()


@pytest.mark.parametrize("source", ["point", "chosen"])
def test_what_a_checkpoint_refers_to_names_no_code_either(source, checkpoint: Path, marker: Path, capsys) -> None:
    """The keys of `point` and of a file of chosen values fill in what the configuration leaves open."""
    Path("values.yaml").write_text("chosen: {none: {fedavg: {keys: {plugins: [intruder]}}}}\n")
    values = {"point": "plugins=[intruder]", "chosen": "values.yaml"}
    path = forged(checkpoint, marker.parent, plugins=None, **{source: values[source]})
    assert main(["run", "--resume", str(path)]) == 2
    assert "give it again: plugins=['intruder']" in capsys.readouterr().err
    with pytest.raises(UserError, match="the checkpoint names code to import"):
        fl.load_model(path.parents[3])
    assert not marker.exists()


def test_a_checkpoint_cannot_have_a_callback_made(checkpoint: Path, marker: Path, capsys) -> None:
    path = forged(checkpoint, marker.parent, callbacks=["intruder.Callback"])
    assert main(["run", "--resume", str(path)]) == 2
    assert "give it again: callbacks=['intruder.Callback']" in capsys.readouterr().err
    assert not marker.exists()


@pytest.mark.parametrize("changes", [{"plugins": ["intruder"]}, {"model__name": "intruder.Net"}])
def test_reading_a_model_imports_no_code_that_only_its_checkpoint_names(changes, checkpoint, marker, capsys) -> None:
    path = forged(checkpoint, marker.parent, **changes)
    assert main(["export", str(path.parents[3]), "--to", str(marker.parent / "model.pt")]) == 2
    assert "the checkpoint names code to import" in capsys.readouterr().err
    for read in (lambda: fl.load_model(path.parents[3]), lambda: FederatedModule.load_from_checkpoint(path)):
        with pytest.raises(UserError, match="the checkpoint names code to import"):
            read()
    assert not marker.exists()
    [named] = [value if isinstance(value, list) else [value] for value in changes.values()]
    with contextlib.suppress(UserError):  # there is no such model
        fl.load_model(path.parents[3], code=named)
    assert marker.exists()


def test_the_plugin_of_an_exported_run_is_given_again(checkpoint: Path, marker: Path, capsys) -> None:
    path = forged(checkpoint, marker.parent, plugins=["intruder"])
    arguments = ["export", str(path.parents[3]), "--to", str(marker.parent / "model.pt")]
    assert main([*arguments, "plugins=[intruder]"]) == 0
    assert marker.exists()
    assert main([*arguments, "plugins=[intruder]", "seed=1"]) == 2
    assert "seed=1: only plugins and a model's dotted path are named again" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["sys.exit", "os.abort", "collections.OrderedDict", "os.nothing", "Plain"])
def test_a_callback_is_a_class_of_callbacks_before_it_is_called(path, tmp_path: Path, capsys) -> None:
    assert main(["run", *SMALL, *QUIET, f"callbacks=[{path}]", f"output.dir={tmp_path}"]) == 2
    assert f"callbacks=[{path}] is n" in capsys.readouterr().err


def test_the_command_to_resume_names_the_users_code(tmp_path: Path, capsys) -> None:
    keys = [*SMALL, *QUIET, "model.name=tests.models.own_modules.Plain", f"output.dir={tmp_path}"]
    assert main(["run", *keys]) == 0
    next(tmp_path.glob("*/result.json")).unlink()
    assert main(["run", *keys]) == 0
    assert "model.name=tests.models.own_modules.Plain output.dir=" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["sys.exit", "os.system", "subprocess.Popen", "os.path"])
def test_a_model_is_an_nn_module_class_before_it_is_called(path, tmp_path: Path, capsys) -> None:
    assert main(["run", *SMALL, *QUIET, f"model.name={path}", f"output.dir={tmp_path}"]) == 2
    assert f"model.name={path} is not a class derived from torch.nn.Module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(:\n", "SyntaxError: "),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
        ("class Own(BaseException): pass\nraise Own('mine')\n", "Own: mine"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("import no_such_module_at_all\n", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        (
            "from fl_platform import state\nstate(None)\n",
            "TypeError: state(None): what a state begins with is given as",
        ),
    ],
)
def test_a_plugin_that_fails_is_one_sentence_with_its_line(text, reason, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["run", *SMALL, *QUIET, "plugins=[broken]", f"output.dir={tmp_path / 'runs'}"]) == 2
    error = capsys.readouterr().err
    assert f"plugins=[broken] cannot be imported: {reason}" in error
    assert f"{tmp_path / 'broken.py'}, line " in error
    assert error.count("\n") == 1


def test_a_proposal_of_a_ledger_adds_no_keys_and_no_values(tmp_path: Path) -> None:
    sweep = quick_sweep(tmp_path, {"seed": {"values": [0, 1]}})
    for params in ({"seed": 0, "plugins": ["os"]}, {"seed": 7}, {"model.name": "os.system"}):
        with pytest.raises(UserError, match="of the ledger is not a value of the sweep"):
            make_trial(sweep, tmp_path, 0, params)


def test_looking_at_a_sweep_directory_imports_none_of_its_plugins(marker: Path, capsys) -> None:
    """Given as a directory it is data: also where the code is named in a point. A YAML is the user's own."""
    named = {"plugins": {"value": ["intruder"]}, "algorithm.name": {"value": "theirs"}}
    for parameters in (named, {"point": {"values": ["plugins=[intruder] algorithm.name=theirs"]}}):
        swept = {**parameters, "algorithm.mu": {"values": [1, 2]}}
        sweep = quick_sweep(marker.parent, swept)
        directory = sweep.directory
        sweep.write_copy(directory)
        Ledger(directory).close()
        assert main(["sweep", "status", str(directory)]) == 0
        fixed = {key: spec.get("value", spec.get("values", [0])[0]) for key, spec in parameters.items()}
        with Ledger(directory) as ledger:
            ledger.propose([{**fixed, "algorithm.mu": mu} for mu in (1, 2)])
            for number, accuracy in enumerate((0.5, 0.7)):
                summary = {"status": "finished", metrics.TOP_ACCURACY: accuracy}
                ledger.record(number, TrialState.STARTED, run_id=f"run{number}", attempt=1)
                data = {"summary": summary}
                ledger.record(number, TrialState.FINISHED, run_id=f"run{number}", attempt=1, data=data)
        assert main(["sweep", "status", str(directory)]) == 0
        capsys.readouterr()
        assert main(["sweep", "best", str(directory)]) == 0
        best = yaml.safe_load(capsys.readouterr().out)["chosen"]["none"]["theirs"]
        assert (best["run"], best["keys"]["algorithm"], best["points_tried"]) == ("run1", {"mu": 2}, 2)
        assert read_sweep(directory).values["done"] == 2
        assert not marker.exists()
        assert main(["sweep", "best", str(sweep.source), *sweep.overrides]) == 2
        assert "theirs is not known" in capsys.readouterr().err
        assert marker.exists()
        marker.unlink()
        sys.modules.pop("intruder")


def test_a_pipe_is_not_read_as_a_checkpoint(tmp_path: Path, capsys) -> None:
    pipe = tmp_path / "round-000001-0123456789abcdef.ckpt"
    os.mkfifo(pipe)
    assert main(["run", "--resume", str(pipe)]) == 2
    assert "is not a regular file" in capsys.readouterr().err
    assert newest_valid(tmp_path) is None
    (tmp_path / "zero.ckpt").symlink_to("/dev/zero")
    assert main(["run", "--resume", str(tmp_path / "zero.ckpt")]) == 2


def test_a_plugin_with_null_bytes_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "null_bytes.py").write_bytes(b"x = 1\0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["run", *SMALL, *QUIET, "plugins=[null_bytes]", f"output.dir={tmp_path / 'runs'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fl_platform: plugins=[null_bytes] cannot be imported: SyntaxError: ")
    assert "None" not in error
