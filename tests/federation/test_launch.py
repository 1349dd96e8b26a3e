"""A run builds each of its parts once, and refuses what it can before it opens anything."""

import functools
import json

import lightning as L
import pytest
from lightning.pytorch.loggers import WandbLogger

from fl_platform.algorithms.gradma import GradMA
from fl_platform.cli import main
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.errors import UserError
from fl_platform.federation import launch as launching
from fl_platform.federation.checkpoints import RoundCheckpoint, sorted_checkpoints
from fl_platform.federation.launch import launch
from fl_platform.federation.progress import GracefulStop, RoundProgress
from fl_platform.federation.trainer import attach, check_accelerator, check_trainer_keys, make_trainer

SMALL = ["num_workers=6", "cohort_size=2", "num_rounds=2", "local_steps=1", "algorithm.name=gradma"]


@pytest.fixture
def counted(monkeypatch):
    """How many Trainers, algorithms and loggers were constructed."""
    counts = dict.fromkeys((L.Trainer, GradMA, WandbLogger), 0)
    for kind in counts:
        construct = kind.__init__

        @functools.wraps(construct)
        def counting(self, *args, _kind=kind, _construct=construct, **kwargs):
            counts[_kind] += 1
            _construct(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", counting)
    return counts


def test_trainer_algorithm_and_logger_are_built_once_per_run(counted, tmp_path, capsys):
    arguments = [*SMALL, "algorithm.memory_size=4", f"output.dir={tmp_path}", "trainer.enable_progress_bar=false"]
    assert main(["run", *arguments]) == 0
    assert counted == {L.Trainer: 1, GradMA: 1, WandbLogger: 1}
    [described] = tmp_path.glob("*/run.json")
    assert json.loads(described.read_text())["run"]["engine"] == "loop"


def test_what_lightning_refuses_is_refused_before_data_is_read_or_anything_is_opened(counted, tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "build", lambda *args: pytest.fail("data was read"))
    spec = resolve(
        compose([*SMALL, "algorithm.memory_size=4", "trainer.accelerator=abacus", f"output.dir={tmp_path / 'runs'}"])
    )
    with pytest.raises(UserError, match=r"trainer\.accelerator=abacus is refused by Lightning"):
        launch(spec)
    assert counted[WandbLogger] == counted[GradMA] == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["gpu", "cuda"])
def test_a_gpu_that_is_not_there(name, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=f"trainer.accelerator={name}: this machine has no CUDA device; leave it out"):
        check_accelerator(name)
    check_accelerator("cpu")
    check_accelerator(None)


@pytest.mark.parametrize("name", ["mps", "auto"])
def test_a_gpu_without_float64(name, monkeypatch):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    with pytest.raises(UserError, match=f"trainer.accelerator={name}: GPUs of Apple have no float64"):
        check_accelerator(name)


def test_callbacks_that_save_come_last(tmp_path):
    trainer = make_trainer(resolve(compose(SMALL[:4])))
    saving, stop = RoundCheckpoint(tmp_path, 1), GracefulStop()
    attach(trainer, [], [saving, stop])
    assert trainer.callbacks[-2:] == [stop, saving]
    assert [type(callback) for callback in trainer.callbacks] == [RoundProgress, GracefulStop, RoundCheckpoint]
    assert trainer.logger is None


def test_a_checkpoint_from_elsewhere_starts_an_attempt_of_its_own(tmp_path):
    """The directory the file lies in is not written to."""
    arguments = [*SMALL[:4], "tracking.mode=disabled", "checkpoint.every=1", "trainer.enable_progress_bar=false"]
    first = resolve(compose([*arguments, f"output.dir={tmp_path / 'a'}"]))
    whole = launch(first)
    [checkpoints] = first.directory.glob("attempts/*/checkpoints")
    copy = tmp_path / "kept" / sorted_checkpoints(checkpoints)[-1][1].name
    copy.parent.mkdir()
    copy.write_bytes((checkpoints / copy.name).read_bytes())
    second = resolve(compose([*arguments, f"output.dir={tmp_path / 'b'}"]))
    assert launch(second, copy).summary["fingerprint"] == whole.summary["fingerprint"]
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]
    assert (second.directory / "attempts" / "0001" / "rounds.jsonl").is_file()


@pytest.mark.parametrize("name", ["detect_anomaly", "sync_batchnorm", "enable_model_summary", "inference_mode"])
def test_truth_values_of_the_trainer_are_checked(name):
    check_trainer_keys({name: True})
    with pytest.raises(UserError, match=rf"trainer\.{name}=x is not allowed; allowed: true \| false"):
        check_trainer_keys({name: "x"})
