"""Damaged and forged checkpoints: refused in one sentence, or gone on from; nothing in them is ever run."""

import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fl_platform.runs.checkpoint_files import digest, sorted_checkpoints
from tests.torture.hostile import Outcome, Tally, damaged, flipped, judge
from tests.torture.test_fuzz_data import Intruder

Scale = Callable[[int, int], int]
Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first of two rounds of a run that keeps every kind of state."""
    output = tmp_path_factory.mktemp("runs")
    outcome = judge(
        *("run", "algorithm.name=gradma", "algorithm.memory_size=4", "num_workers=4", "cohort_size=2"),
        *("local_steps=1", "batch_size=8", "num_rounds=2", "checkpoint.every=1", "tracking.mode=disabled"),
        *(f"output.dir={output}", "trainer.enable_progress_bar=false", "data.dirichlet_omega=10"),
    )
    assert outcome.code == 0
    return sorted_checkpoints(next(output.glob("*/attempts/*/checkpoints")))[-1][1]


def resume(path: Path) -> Outcome:
    return judge("run", "--resume", str(path), codes=(0, 2, 3))


def forge(content: bytes, sound: Path, folder: Path) -> Path:
    """Any content under the name that belongs to it, in a run directory of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    path = folder / "r" / "attempts" / "0001" / "checkpoints" / "x.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path.rename(path.with_name(f"round-000001-{digest(path)}.ckpt"))


def test_damage_is_noticed_before_anything_is_read(
    sound: Path, tmp_path: Path, scale: Scale, record_property: Note
) -> None:
    content = sound.read_bytes()
    path = tmp_path / sound.name
    for number in range(scale(30, 1000)):
        changed = damaged(content, random.Random(number))
        path.write_bytes(changed)
        assert changed == content or resume(path).code == 2
    assert [*tmp_path.iterdir()] == [path]
    record_property("damaged checkpoints", scale(30, 1000))


def test_a_forged_name_gets_no_further_than_plain_values(
    sound: Path, tmp_path: Path, scale: Scale, record_property: Note
) -> None:
    content = sound.read_bytes()
    assert resume(forge(content, sound, tmp_path / "runs")).code == 0
    tally = Tally()
    for number in range(scale(10, 500)):
        rng = random.Random(number)
        changed = damaged(content, rng) if number % 2 else flipped(content, rng, 1)
        tally.count(resume(forge(changed, sound, tmp_path / "runs")))
    assert tally.accepted < tally.cases // 10  # only where a bit does not matter: the zip file has checksums
    record_property("damaged checkpoints renamed to match", f"{tally.cases}, {tally.accepted} accepted")


def test_a_checkpoint_that_would_run_code_is_refused_and_runs_none(sound: Path, tmp_path: Path) -> None:
    hit = tmp_path / "hit"
    saved = tmp_path / "saved.ckpt"
    torch.save({"federated": Intruder(hit)}, saved)
    inside = tmp_path / "inside.ckpt"  # a sound file whose pickle was exchanged
    with zipfile.ZipFile(sound) as source, zipfile.ZipFile(inside, "w") as target:
        for item in source.infolist():
            is_pickle = item.filename.endswith("data.pkl")
            target.writestr(item, pickle.dumps(Intruder(hit), protocol=2) if is_pickle else source.read(item))
    for content in (saved.read_bytes(), inside.read_bytes(), pickle.dumps(Intruder(hit)), pickle.dumps({"a": 1}), b""):
        assert resume(forge(content, sound, tmp_path / "runs")).code == 2
    assert not hit.exists()


@pytest.mark.parametrize(
    "content",
    [{}, {"federated": {}}, {"federated": {"config": "[]"}}, {"federated": {"config": "{}"}}, [1], {"epoch": 3}],
    ids=str,
)
def test_a_checkpoint_of_another_program_is_refused(content: object, sound: Path, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x")
    assert resume(forge((tmp_path / "x").read_bytes(), sound, tmp_path / "runs")).code == 2
