"""Data files that are damaged, hostile or enormous are refused in one sentence, and nothing in them is run."""

import gzip
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.torture.hostile import Outcome, Tally, damaged, damaged_text, judge

Scale = Callable[[int, int], int]
Note = Callable[[str, object], None]
SMALL = ("num_workers=1", "cohort_size=1", "data.partition=iid")


class Intruder:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)  # where pictures of partitions are drawn
    return tmp_path / "data"


def load(name: str, root: Path) -> Outcome:
    return judge("data", "partition", f"data.name={name}", f"data.root={root}", *SMALL)


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def cifar_record(rng: random.Random) -> bytes:
    return bytes([rng.randrange(256)]) + rng.randbytes(3072)


def sound_files(root: Path) -> dict[str, tuple[str, Path, bytes]]:
    """Small files in the published formats, by what they are: the data set, where one would lie, its content."""
    rng = random.Random(0)
    pixels = np.arange(5 * 784, dtype=np.uint32).astype(np.uint8).reshape(5, 28, 28)
    batch = {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 9], "fine_labels": [1, 99]}
    raw = root / "MNIST" / "raw"
    return {
        "idx": ("mnist", raw / "train-images-idx3-ubyte", idx(pixels)),
        "idx, compressed": ("mnist", raw / "train-images-idx3-ubyte.gz", gzip.compress(idx(pixels))),
        "CIFAR-10 pickle": ("cifar10", root / "cifar-10-batches-py" / "data_batch_1", pickle.dumps(batch, protocol=2)),
        "CIFAR-10 binary": ("cifar10", root / "cifar-10-batches-bin" / "data_batch_1.bin", cifar_record(rng) * 3),
        "CIFAR-100 pickle": ("cifar100", root / "cifar-100-python" / "train", pickle.dumps(batch, protocol=2)),
    }


@pytest.mark.parametrize("kind", ["idx", "idx, compressed", "CIFAR-10 pickle", "CIFAR-10 binary", "CIFAR-100 pickle"])
def test_anything_but_the_published_bytes_is_refused(
    kind: str, root: Path, scale: Scale, record_property: Note
) -> None:
    name, path, sound = sound_files(root)[kind]
    path.parent.mkdir(parents=True)
    for number in range(scale(8, 300)):
        path.write_bytes(damaged(sound, random.Random(number)) if number else sound)
        outcome = load(name, root)
        assert outcome.code == 2  # none may be accepted: the small sound file is not the published one either
        assert str(path) in outcome.err
        assert f"data get {name}" in outcome.err
    record_property(f"files that are not the published {kind}", scale(8, 300))


@pytest.mark.parametrize(
    ("name", "file"), [("cifar10", "cifar-10-batches-py/data_batch_1"), ("cifar100", "cifar-100-python/train")]
)
def test_a_pickle_is_not_opened_to_see_what_it_does(name: str, file: str, root: Path) -> None:
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(Intruder(root / "hit")))
    assert load(name, root).code == 2
    assert not (root / "hit").exists()


def test_bombs_are_refused_before_they_unfold(root: Path) -> None:
    """3 GB of zeros in 3 MB, and a file of 50 GB that is a hole: neither fits the room that ``judge`` gives."""
    path = root / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(bytes(1 << 24)) * 200)
    outcome = load("mnist", root)
    assert (outcome.code, "holds more than" in outcome.err) == (2, True)
    path.unlink()
    with open(path.with_suffix(""), "wb") as file:
        file.truncate(50 << 30)
    outcome = load("mnist", root)
    assert (outcome.code, "holds more than" in outcome.err) == (2, True)


# --- Tiny-ImageNet: only its archive has a published md5, so what is in the folder is judged file by file ---


@pytest.fixture
def tiny(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    rng = np.random.default_rng(0)
    for name in ("n01", "n02"):
        for path in (folder / "train" / name / "images" / f"{name}_0.JPEG", folder / "val" / "images" / f"{name}.JPEG"):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    (folder / "val" / "val_annotations.txt").write_text("n01.JPEG\tn01\t0\t0\t9\t9\nn02.JPEG\tn02\t0\t0\t9\t9\n")
    assert load("tiny_imagenet", root).code == 0
    return folder


def test_damaged_pictures(tiny: Path, root: Path, scale: Scale, record_property: Note) -> None:
    path = tiny / "train" / "n01" / "images" / "n01_0.JPEG"
    sound = path.read_bytes()
    tally = Tally()
    for number in range(scale(10, 600)):
        path.write_bytes(damaged(sound, random.Random(number)))
        tally.count(load("tiny_imagenet", root))
    assert tally.accepted < tally.cases
    tally.record(record_property, "damaged pictures", at_least=0.2)


@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
def test_damaged_lists(name: str, tiny: Path, root: Path, scale: Scale, record_property: Note) -> None:
    sound, tally = (tiny / name).read_text(), Tally()
    for number in range(scale(10, 300)):
        (tiny / name).write_bytes(damaged_text(sound, random.Random(number)))
        tally.count(load("tiny_imagenet", root))
    tally.record(record_property, f"damaged {name}", at_least=0.2)


@pytest.mark.parametrize("stray", ["../../../secret.JPEG", "/etc/passwd", "a/b.JPEG", "..", "a\0b"])
def test_listed_names_cannot_leave_the_folder(stray: str, tiny: Path, root: Path) -> None:
    (tiny / "val" / "val_annotations.txt").write_text(f"{stray}\tn01\t0\t0\t9\t9\n")
    outcome = load("tiny_imagenet", root)
    assert (outcome.code, "is not the name of a file" in outcome.err) == (2, True)
    (tiny / "wnids.txt").write_text(f"n01\n{stray}\n")
    outcome = load("tiny_imagenet", root)
    assert (outcome.code, "is not the name of a class" in outcome.err) == (2, True)


@pytest.mark.parametrize("side", [65, 9_000, 12_000, 20_000])
def test_pictures_of_another_size_are_refused_undecoded(side: int, tiny: Path, root: Path) -> None:
    """A picture of 20,000 x 20,000 pixels takes 1.2 GB; its file, all black, takes a thousandth."""
    path = tiny / "train" / "n01" / "images" / "n01_0.JPEG"
    Image.new("1", (side, side)).save(path, format="PNG")
    assert load("tiny_imagenet", root).code == 2


def test_a_damaged_store_of_decoded_pictures_is_made_anew(
    tiny: Path, root: Path, scale: Scale, record_property: Note
) -> None:
    (stored,) = (root.parent / "cache").rglob("*.npz")
    sound = stored.read_bytes()
    for number in range(scale(5, 100)):
        stored.write_bytes(damaged(sound, random.Random(number)))
        assert load("tiny_imagenet", root).code == 0
    record_property("damaged stores of decoded pictures", scale(5, 100))
