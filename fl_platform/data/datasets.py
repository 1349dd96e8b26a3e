"""Registry of data sets: description, location on disk, and loading of verified images.

A data set outside the repository is added by calling ``register`` when its module is imported.
"""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import platformdirs

from fl_platform.config.registry import DATASETS
from fl_platform.data import readers
from fl_platform.data.image_set import ImageSet
from fl_platform.data.tiny_imagenet import read_tiny_imagenet
from fl_platform.errors import UserError


@dataclass(frozen=True)
class Dataset:
    """A data set and the experiment the paper runs on it."""

    name: str
    description: str
    num_classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    load: Callable[[Path], tuple[ImageSet, ImageSet]]
    """Called with the folder that was found, or the data root when ``folders`` is empty; returns (train, test)."""
    folders: tuple[str, ...] = ()
    """Alternative locations of the files below a data root; empty for a data set that needs no files."""
    crop_padding: int = 0
    flip: bool = False
    default_model: str = "mlp"
    num_rounds: int = 500
    evaluation_every: int = 1
    targets: tuple[float, ...] = ()
    label: str = ""
    """As printed in tables and figures; the name where none is given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)


class DamagedData(UserError):
    """Files of a data set that are not the published ones.

    ``fault`` names the file and what is wrong with it; the message adds the command that fetches the data again.
    """

    def __init__(self, dataset: str, fault: str, command: str) -> None:
        super().__init__(f"{fault}; fetch it again with `{command}`")
        self.dataset, self.fault = dataset, fault


def register(dataset: Dataset) -> None:
    """Make a data set available under its name; UserError for a name that is taken."""
    DATASETS.add(dataset.name, dataset)


def names() -> list[str]:
    """Return the names of all registered data sets."""
    return DATASETS.names()


def get(name: str) -> Dataset:
    """Return the data set of this name; UserError where none is registered."""
    dataset: Dataset = DATASETS.get(name)
    return dataset


def cache_directory() -> Path:
    """The directory for downloads and decoded images in the user's cache."""
    return Path(platformdirs.user_cache_dir("fl_platform"))


def roots(root: str | Path | None = None) -> list[Path]:
    """Directories searched for data, in order: ``root`` (``data.root``), $FL_DATA_ROOT, the user cache."""
    given = [root, os.environ.get("FL_DATA_ROOT")]
    return [Path(place).expanduser() for place in given if place] + [cache_directory() / "data"]


def find(name: str, root: str | Path | None = None) -> Path | None:
    """The folder that holds a data set, or None if it was not found or needs no files."""
    places = [place / folder for place in roots(root) for folder in get(name).folders]
    return next((place for place in places if place.is_dir()), None)


def load(name: str, root: str | Path | None = None) -> tuple[ImageSet, ImageSet]:
    """Load and verify a data set; returns (train, test).

    Raises ``UserError`` if it is unknown, not found, or not as described, and ``DamagedData`` if a file is damaged.
    """
    dataset = get(name)
    folder = find(name, root)
    if folder is None and dataset.folders:
        looked = ", ".join(str(place) for place in roots(root))
        raise UserError(f"data.name={name} is not there (looked in {looked}); get it with `{get_command(name)}`")
    return load_folder(dataset, folder or roots(root)[0])


def load_folder(dataset: Dataset, folder: Path) -> tuple[ImageSet, ImageSet]:
    """Load and verify the files in one folder; returns (train, test).

    Raises ``DamagedData`` if a file is damaged, and ``UserError`` if the images are not as ``dataset`` describes them.
    """
    try:
        train, test = dataset.load(folder)
    except readers.DamagedFile as error:
        raise DamagedData(dataset.name, str(error), get_command(dataset.name, folder)) from None
    for part, images in (("training", train), ("test", test)):
        if fault := images.fault(dataset.shape, dataset.num_classes):
            raise UserError(f"data.name={dataset.name}: in the {part} set of {folder}, {fault}")
    return train, test


def get_command(name: str, folder: Path | None = None) -> str:
    """The shell command that fetches a data set, into the data root that contains ``folder`` if it is given."""
    root = folder and next((up for up in folder.parents if any(up / end == folder for end in get(name).folders)), None)
    return f"python -m fl_platform data get {name}" + (f" --root {shlex.quote(str(root))}" if root else "")


def _read_cifar10(folder: Path) -> tuple[ImageSet, ImageSet]:
    if folder.name == "cifar-10-batches-bin":
        return readers.read_cifar10_binary(folder)
    return readers.read_cifar_pickles(folder, readers.CIFAR10_PICKLE_MD5, "labels")


for _dataset in (
    Dataset(
        name="digits",
        label="Digits",
        description="8x8 handwritten digits embedded in scikit-learn; needs no files",
        num_classes=10,
        shape=(1, 8, 8),
        mean=(0.3053,),
        std=(0.3759,),
        load=lambda folder: readers.read_digits(),
        num_rounds=100,
        targets=(0.9,),
    ),
    Dataset(
        name="mnist",
        label="MNIST",
        description="28x28 handwritten digits",
        num_classes=10,
        shape=(1, 28, 28),
        mean=(0.1307,),
        std=(0.3081,),
        load=partial(readers.read_idx_pair, md5=readers.MNIST_MD5),
        folders=("MNIST/raw",),
        targets=(0.4, 0.45, 0.5, 0.95),
    ),
    Dataset(
        name="fashion_mnist",
        label="Fashion-MNIST",
        description="28x28 pieces of clothing; not in the paper",
        num_classes=10,
        shape=(1, 28, 28),
        mean=(0.2860,),
        std=(0.3530,),
        load=partial(readers.read_idx_pair, md5=readers.FASHION_MNIST_MD5),
        folders=("FashionMNIST/raw",),
        targets=(0.6, 0.7, 0.8),
    ),
    Dataset(
        name="cifar10",
        label="CIFAR-10",
        description="32x32 colour images of 10 classes",
        num_classes=10,
        shape=(3, 32, 32),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        load=_read_cifar10,
        folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
        crop_padding=4,
        flip=True,
        default_model="lenet5",
        num_rounds=1000,
        targets=(0.15, 0.45, 0.55),
    ),
    Dataset(
        name="cifar100",
        label="CIFAR-100",
        description="32x32 colour images of 100 classes",
        num_classes=100,
        shape=(3, 32, 32),
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        load=partial(readers.read_cifar_pickles, md5=readers.CIFAR100_PICKLE_MD5, label_key="fine_labels"),
        folders=("cifar-100-python",),
        crop_padding=4,
        flip=True,
        default_model="vgg11",
        num_rounds=2000,
        targets=(0.3, 0.4, 0.6),
    ),
    Dataset(
        name="tiny_imagenet",
        label="Tiny-ImageNet",
        description="64x64 colour images of 200 classes; the validation images are the test set",
        num_classes=200,
        shape=(3, 64, 64),
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2770, 0.2691, 0.2821),
        load=lambda folder: read_tiny_imagenet(folder, cache_directory() / "decoded"),
        folders=("tiny-imagenet-200",),
        crop_padding=8,
        flip=True,
        default_model="resnet20",
        num_rounds=2000,
        evaluation_every=5,
        targets=(0.05, 0.3, 0.35),
    ),
):
    register(_dataset)
