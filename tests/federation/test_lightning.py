"""The module and the algorithms in one's own Trainer, callbacks and further loggers as keys."""

import csv
import sys

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger

import fl_platform as fl
from fl_platform.algorithms.fedavg import FedAvg
from fl_platform.algorithms.gradma import GradMA
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data.prepare import prepare
from fl_platform.federation.build import build, make_algorithm
from fl_platform.runs.checkpoint_files import sorted_checkpoints

ARGUMENTS = ["num_workers=10", "cohort_size=3", "local_steps=1", "num_rounds=3"]
OFF = {"num_workers": 10, "cohort_size": 3, "local_steps": 1, "num_rounds": 4, "tracking.mode": "disabled"}
QUIET = {"enable_progress_bar": False, "enable_model_summary": False}


class Counts(L.Callback):
    """Counts the rounds it sees."""

    rounds = 0

    def on_train_epoch_end(self, trainer, pl_module):
        Counts.rounds += 1


def own_trainer(tmp_path, *callbacks, **arguments):
    return L.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        default_root_dir=tmp_path,
        **{**QUIET, "logger": False} | arguments,
    )


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*have no logger configured.*")
@pytest.mark.filterwarnings("ignore:.*configure_optimizers.*")
@pytest.mark.filterwarnings("ignore:.*logging interval.*")
class TestOwnTrainer:
    def fit(self, tmp_path, *callbacks, **arguments):
        config = resolve(compose(ARGUMENTS)).config
        algorithm = GradMA()
        module = build(config, algorithm)
        trainer = own_trainer(tmp_path, algorithm, *callbacks, **{"max_epochs": 3} | arguments)
        trainer.fit(module)
        return trainer, module

    def test_training_gives_the_bits_of_run(self, tmp_path):
        """Also with Lightning's own sanity check and logger."""
        logger = CSVLogger(tmp_path)
        _, module = self.fit(tmp_path, logger=logger, num_sanity_val_steps=2)
        same = fl.run(OFF, num_rounds=3, algorithm="gradma", output={"dir": tmp_path}, progress=False)
        assert module.fingerprint() == same.summary["fingerprint"]
        with open(f"{logger.log_dir}/metrics.csv", encoding="utf-8") as file:
            assert [row["round"] for row in csv.DictReader(file)] == ["1", "2", "3"]

    def test_early_stopping_sees_the_accuracy(self, tmp_path):
        stop = EarlyStopping("test/accuracy", mode="max", stopping_threshold=0.0)
        trainer, _ = self.fit(tmp_path, stop, enable_checkpointing=False)
        assert trainer.current_epoch == 1

    def test_test_and_forward_score_the_trained_model(self, tmp_path):
        trainer, module = self.fit(tmp_path, enable_checkpointing=False)
        [scores] = trainer.test(module, verbose=False)
        _, test = prepare(module.config)
        with torch.no_grad():
            found = float((module(test.features).argmax(1) == test.labels).double().mean())
        assert scores["test/accuracy"] == pytest.approx(module.scoreboard.final_accuracy)
        assert found == module.scoreboard.final_accuracy


@pytest.fixture(scope="module")
def feddyn(tmp_path_factory):
    """A method whose scored model is not the server's: its state must come along."""
    keys = {**OFF, "output.dir": tmp_path_factory.mktemp("runs"), "algorithm.evaluated": "active_mean"}
    return fl.run(keys, algorithm="feddyn", progress=False)


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*have no logger configured.*")
@pytest.mark.parametrize("way", ["load_from_checkpoint", "ckpt_path"])
def test_a_checkpoint_can_be_tested_with_ones_own_trainer(way, feddyn, tmp_path):
    [(_, path), *_] = sorted_checkpoints(feddyn.attempt / "checkpoints")
    if way == "load_from_checkpoint":
        module = fl.FederatedModule.load_from_checkpoint(path)
        assert [row["round"] for row in module.history] == [1, 2, 3, 4]
        [scores] = own_trainer(tmp_path).test(module, verbose=False)
    else:
        config = fl.FederatedModule.load_from_checkpoint(path).config
        algorithm = make_algorithm(config)
        module = build(config, algorithm)
        [scores] = own_trainer(tmp_path, algorithm).test(module, ckpt_path=path, verbose=False, weights_only=True)
    assert scores["test/accuracy"] == pytest.approx(feddyn.summary["test/final_accuracy"])


def test_a_file_that_no_run_wrote_is_refused(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(fl.UserError, match="was not written by a run"):
        fl.FederatedModule.load_from_checkpoint(tmp_path / "other.ckpt")
    with pytest.raises(fl.UserError, match="no such file"):
        fl.FederatedModule.load_from_checkpoint(tmp_path / "none.ckpt")


def test_callbacks_are_named_by_their_dotted_path(tmp_path):
    Counts.rounds = 0
    fl.run(OFF, callbacks=[f"{__name__}.Counts"], output={"dir": tmp_path}, progress=False)
    assert Counts.rounds == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"callbacks": ["nowhere.Callback"]}, r"callbacks=\[nowhere.Callback\] cannot be imported: No module named"),
        ({"callbacks": ["Counts"]}, r"callbacks=\[Counts\] is no dotted path"),
        ({"callbacks": ["collections.OrderedDict"]}, "is not a class of callbacks"),
        ({"callbacks": [f"{FedAvg.__module__}.FedAvg"]}, "is not a class of callbacks"),
        ({"tracking": {"also": ["excel"]}}, r"tracking.also=\['excel'\] is not allowed; allowed: csv \| tensorboard"),
    ],
)
def test_what_is_no_callback_or_logger_is_refused_before_any_work(keys, message, tmp_path):
    with pytest.raises(fl.UserError, match=message):
        fl.run({"output.dir": tmp_path / "runs"}, **keys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_logger_whose_package_is_missing_is_one_sentence(name, tmp_path, monkeypatch):
    for module in (name, "tensorboardX"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(fl.UserError, match=rf"tracking.also=\[{name}\] needs the package {name}"):
        fl.run({"output.dir": tmp_path / "runs"}, tracking={"also": [name]})
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore")  # of MLflow and TensorBoard
def test_tensorboard_and_mlflow_have_every_round(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = fl.run(OFF, output={"dir": tmp_path}, tracking={"also": ["tensorboard", "mlflow"]}, progress=False)
    rounds, accuracies = run.rounds["round"].tolist(), run.rounds["test/accuracy"].tolist()

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.attempt / "tensorboard")).Reload().Scalars("test/accuracy")
    assert [event.step for event in events] == rounds
    assert [event.value for event in events] == pytest.approx(accuracies)

    from mlflow.tracking import MlflowClient  # seconds, for this test only

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    [found] = client.search_runs([client.get_experiment_by_name("fl_platform").experiment_id])
    assert found.data.params["algorithm.name"] == "fedavg"
    logged = client.get_metric_history(found.info.run_id, "test/accuracy")
    assert [(metric.step, metric.value) for metric in logged] == list(zip(rounds, accuracies, strict=True))
    assert found.info.status == "FINISHED"


def test_csv_has_every_round_once_also_of_a_run_that_went_on(tmp_path):
    keys = {**OFF, "output.dir": tmp_path, "tracking.also": ["csv"], "checkpoint.every": 2}
    whole = fl.run(keys, progress=False)
    file = whole.attempt / "csv" / "metrics.csv"
    with open(file, encoding="utf-8") as rows:
        first = list(csv.DictReader(rows))
    assert [row["round"] for row in first] == [row["step"] for row in first] == ["1", "2", "3", "4"]
    assert [float(row["test/accuracy"]) for row in first] == whole.rounds["test/accuracy"].tolist()
    (whole.directory / "result.json").unlink()
    [(_, newest), _] = sorted_checkpoints(whole.attempt / "checkpoints")
    newest.unlink()
    fl.run(keys, reuse=True, progress=False)
    with open(file, encoding="utf-8") as rows:
        assert [row["round"] for row in csv.DictReader(rows)] == ["1", "2", "3", "4"]
