"""Reader of Tiny-ImageNet's folders of JPEG files, with a cache of the decoded images.

Only the archive has a published md5, and ``fetch`` checks it. In a folder, or a sample of one, a file that cannot
be decoded, has the wrong shape, or is listed but missing raises ``DamagedFile``.
"""

import hashlib
import os
import sys
import tokenize
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_platform.data.readers import DamagedFile, Pair
from fl_platform.data.samples import Samples

Listing = list[tuple[Path, int]]
"""Image files and their classes."""
NPZ_ERRORS = (
    *(OSError, ValueError, KeyError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile),
    *(NotImplementedError, RuntimeError),  # a flipped bit can request an unsupported compression or encryption
    *(SyntaxError, tokenize.TokenError),  # NumPy reads its headers as Python literals
)
"""Exceptions that reading a damaged .npz can raise."""


def read_tiny_imagenet(folder: Path, cache: Path) -> Pair:
    """Read (train, validation) of a folder, caching decoded arrays in ``cache`` under a digest of the file listing.

    Raises ``DamagedFile`` if a file is missing or damaged.
    """
    classes = {name: label for label, name in enumerate(sorted(read_fields(folder / "wnids.txt")))}
    listings = list_train(folder, classes), list_validation(folder, classes)
    stored = cache / f"tiny_imagenet-{digest_of(folder, listings)}.npz"
    arrays = read_cache(stored)
    if arrays is None:
        print(f"decoding the images of {folder} (once)", file=sys.stderr)
        arrays = [decode(listing) for listing in listings]
        write_cache(stored, arrays)
    train, validation = (
        Samples.from_arrays(images, np.array([label for _, label in listing]))
        for images, listing in zip(arrays, listings, strict=True)
    )
    return train, validation


def read_fields(path: Path) -> list[str]:
    """The fields of a text file, separated by white space; raises ``DamagedFile`` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(path, f"cannot be read ({error})") from None


def is_plain(name: str) -> bool:
    """Whether a listed name is a plain file name, which cannot leave its folder."""
    return "\0" not in name and Path(name).name == name != ".."


def list_train(folder: Path, classes: dict[str, int]) -> Listing:
    """List the training images; raises ``DamagedFile`` if a class has none."""
    listing: Listing = []
    for name, label in classes.items():
        if not is_plain(name):
            raise DamagedFile(folder / "wnids.txt", f"is damaged: {name} is not the name of a class")
        images = folder / "train" / name / "images"
        files = sorted(images.glob("*.JPEG"))
        if not files:
            raise DamagedFile(images, "holds no .JPEG file although wnids.txt names its class")
        listing += [(file, label) for file in files]
    return listing


def list_validation(folder: Path, classes: dict[str, int]) -> Listing:
    """List the validation images from val_annotations.txt: file, class and four box corners per line."""
    path = folder / "val" / "val_annotations.txt"
    fields = read_fields(path)
    if stray := next((file for file in fields[::6] if not is_plain(file)), None):
        raise DamagedFile(path, f"is damaged: {stray} is not the name of a file")
    unknown = set(fields[1::6]) - classes.keys()
    if not fields or len(fields) % 6 or unknown:
        raise DamagedFile(path, f"is damaged: {f'unknown class {min(unknown)}' if unknown else 'a line is incomplete'}")
    return [
        (path.parent / "images" / file, classes[name]) for file, name in zip(fields[::6], fields[1::6], strict=True)
    ]


def digest_of(folder: Path, listings: tuple[Listing, Listing]) -> str:
    """Digest of path, size and modification time of all files, so that an edited file is decoded again."""
    digest = hashlib.blake2b(digest_size=12)
    for path, label in (entry for listing in listings for entry in listing):
        try:
            status = path.stat()
        except OSError as error:
            raise DamagedFile(path, f"cannot be read ({error.strerror})") from None
        digest.update(f"{path.relative_to(folder)} {label} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def decode(listing: Listing) -> NDArray[np.uint8]:
    """Decode images to uint8 [n, 3, 64, 64], in threads because Pillow releases the interpreter lock.

    Raises ``DamagedFile`` if an image cannot be decoded or is not 64 x 64.
    """
    from PIL import Image

    images = np.empty((len(listing), 3, 64, 64), np.uint8)
    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)

    def decode_one(position: int) -> None:
        path = listing[position][0]
        try:
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                if image.size != (64, 64):  # before decoding: a small file can declare a huge image
                    raise ValueError(f"{image.width} x {image.height} pixels, expected 64 x 64")
                images[position] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        except (OSError, SyntaxError, ValueError, *bombs) as error:  # Pillow raises SyntaxError for some broken headers
            raise DamagedFile(path, f"is damaged: {error}") from None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(decode_one, range(len(listing))):
            pass
    return images


def read_cache(path: Path) -> list[NDArray[np.uint8]] | None:
    """Read the decoded (train, validation) images; None if there are none or the file is damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return [stored["train"], stored["validation"]]
    except NPZ_ERRORS:
        return None


def write_cache(path: Path, arrays: list[NDArray[np.uint8]]) -> None:
    """Write the cache atomically. A failure is ignored: without the cache, images are decoded again next time."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, train=arrays[0], validation=arrays[1])
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
