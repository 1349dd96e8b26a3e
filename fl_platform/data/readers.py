"""Readers of the published files. Content is checked against its md5, where one is published, before it is parsed."""

import gzip
import hashlib
import importlib.util
import math
import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_platform import seeding
from fl_platform.data.samples import Samples, hold_out
from fl_platform.errors import UserError

Pair = tuple[Samples, Samples]
"""(train, test)"""
LARGEST = 200_000_000  # bytes; the largest file that is read, CIFAR-100's training set, has 155 MB


SHA256 = {
    "6bbc9ace898e44ae57da46a324031adb": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "a25bea736e30d166cdddb491f175f624": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "2646ac647ad5339dbf082846283269ea": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "27ae3e4e09519cfbb04c329615203637": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "16019d7e3df5f24257cddd939b257f8d": "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
    "f0ef6b0ae62326f3e7ffdfab6717acfc": "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
    "5dd7e06a14cb22eb9f671a540d1b7c25": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "5ea93a67294ea407fff1d09f752e9692": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "942cd6a4bcdd0dd3c604fbe906cb4421": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "ae636b3ba5c66a11e91e8cb52e771fcb": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "53f37980c15c3d472c316c40844f3f0d": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "803d5f7f4d78ea53de84dbe85f74fb6d": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    "8181f5470baa50b63fa0f6fddb340f0a": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "15d484375f8d13e6eb1aabb0c3f46965": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "f4a8712d7a061bf5bd6d2ca38dc4d50a": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "9018921c3c673c538a1fc5bad174d6f9": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
}
"""Published md5 -> sha256 of the same content: two files can be made to have one md5.

MNIST, Fashion-MNIST, CIFAR-100 and the binary files of CIFAR-10; the pickles of CIFAR-10 have their md5 alone.
"""


class DamagedFile(Exception):
    """A file that is not the published one; ``datasets.load_folder`` turns it into a ``DamagedData``."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"{path} {fault}")


def read_verified(path: Path, md5: str | None) -> bytes:
    """Read a file; raises ``DamagedFile`` if it cannot be read or its md5 is not ``md5`` (None: any)."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise DamagedFile(path, f"cannot be read ({error.strerror})") from None
    return verify(path, data, md5)


def md5_of(data: bytes) -> str:
    """The md5 of ``data`` as hexadecimal digits."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def verify(path: Path, data: bytes, md5: str | None) -> bytes:
    """Return ``data``, the content of ``path``; raises ``DamagedFile`` if it is too large or has another md5."""
    if len(data) > LARGEST:
        raise DamagedFile(path, f"is damaged: it holds more than {LARGEST} bytes")
    if md5 is None:
        return data
    found = md5_of(data)
    if found != md5:
        raise DamagedFile(path, f"is damaged: md5 {found}, expected {md5}")
    sha256 = hashlib.sha256(data).hexdigest()
    if SHA256.get(md5, sha256) != sha256:
        raise DamagedFile(path, f"is not the published file: its md5 is, its sha256 {sha256} is not")
    return data


# --- MNIST and Fashion-MNIST: idx files, md5 of the uncompressed content ---

MNIST_MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}


def read_idx_pair(folder: Path, md5: Mapping[str, str]) -> Pair:
    """Read (train, test) from the four idx files of a folder, compressed or not."""
    arrays = [read_idx(folder / name, digest) for name, digest in md5.items()]
    return Samples.from_arrays(arrays[0][:, None], arrays[1]), Samples.from_arrays(arrays[2][:, None], arrays[3])


def read_idx(path: Path, md5: str | None) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, or ``path.gz`` if ``path`` does not exist."""
    packed = path.with_name(path.name + ".gz")
    if packed.exists() and not path.exists():
        try:
            with gzip.open(packed) as file:
                data = verify(packed, file.read(LARGEST + 1), md5)
        except (OSError, EOFError, zlib.error) as error:
            raise DamagedFile(packed, f"is damaged: {error}") from None
    else:
        data = read_verified(path, md5)
    header = 4 + 4 * data[3] if len(data) > 3 else 4  # two zeros, the type, the number of axes, then each axis
    shape = tuple(np.frombuffer(data[4:header], ">u4").astype(np.int64).tolist())
    if len(data) < 5 or data[2] != 8 or len(data) - header != math.prod(shape):
        raise DamagedFile(path, "is damaged: it is not an idx file of unsigned bytes, or is incomplete")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()  # torch needs writable memory


# --- CIFAR-10 and CIFAR-100 ---

CIFAR10_PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
CIFAR10_BINARY_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CIFAR100_PICKLE_MD5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}


def read_cifar_pickles(folder: Path, md5: Mapping[str, str], label_key: str) -> Pair:
    """Read (train, test) from pickled batches, the last of which is the test set."""
    parts = [read_cifar_pickle(folder / name, digest, label_key) for name, digest in md5.items()]
    return join_batches(parts[:-1]), join_batches(parts[-1:])


def read_cifar_pickle(path: Path, md5: str, label_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read (pixels [n, 3072], labels [n]) of one pickled batch."""
    published = read_verified(path, md5)  # unpickling can run code, so only the published bytes get here
    batch: dict[str, Any] = pickle.loads(published, encoding="latin1")
    return np.asarray(batch["data"], np.uint8), np.asarray(batch[label_key], np.int64)


def read_cifar10_binary(folder: Path) -> Pair:
    """Read (train, test) from CIFAR-10's binary version: a label byte and 3072 pixel bytes per image."""
    records = [
        np.frombuffer(read_verified(folder / name, digest), np.uint8).reshape(-1, 3073)
        for name, digest in CIFAR10_BINARY_MD5.items()
    ]
    parts = [(record[:, 1:], record[:, 0].astype(np.int64)) for record in records]
    return join_batches(parts[:-1]), join_batches(parts[-1:])


def join_batches(parts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> Samples:
    """Concatenate batches of (pixels [n, 3072], labels [n])."""
    pixels, labels = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Samples.from_arrays(pixels.reshape(-1, 3, 32, 32), labels)


# --- scikit-learn's digits ---

DIGITS_MD5 = "4d034029885394119b9a7cabcfb5edeb"


def read_digits() -> Pair:
    """Read (train, test): the 1797 digits of scikit-learn, of which a fixed selection of 360 is the test set.

    Raises ``UserError`` if scikit-learn ships other digits.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise UserError("data.name=digits: scikit-learn, which ships the digits, is not installed")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"  # importing it takes a second
    try:
        with gzip.open(file, "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
    except (OSError, ValueError) as error:
        raise UserError(f"data.name=digits: {file} cannot be read: {error}; install scikit-learn 1.x") from None
    images = np.rint(table[:, :64].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)[:, None]
    labels = table[:, 64].astype(np.int64)
    if md5_of(images.tobytes() + labels.astype(np.uint8).tobytes()) != DIGITS_MD5:
        raise UserError("data.name=digits: this version of scikit-learn ships other digits; install scikit-learn 1.x")
    everything = Samples.from_arrays(images, labels)
    kept, held = hold_out(labels, 360, seeding.generator(0, "digits"))
    return everything.subset(kept), everything.subset(held)
