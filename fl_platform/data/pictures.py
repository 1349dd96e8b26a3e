"""Folders of small image files: decoding them in threads, and a cache of the decoded images."""

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

from fl_platform.data.readers import DamagedFile

Listing = list[tuple[Path, int]]
"""Image files and their classes."""
NPZ_ERRORS = (
    *(OSError, ValueError, KeyError, EOFError, MemoryError, zlib.error, zipfile.BadZipFile),
    *(NotImplementedError, RuntimeError),  # a flipped bit can request an unsupported compression or encryption
    *(SyntaxError, tokenize.TokenError),  # NumPy reads its headers as Python literals
)
"""Exceptions that reading a damaged .npz can raise."""


def decoded(
    folder: Path, listings: tuple[Listing, Listing], *, side: int, store: Path, name: str
) -> list[NDArray[np.uint8]]:
    """Return two listings of ``folder`` as uint8 [n, 3, side, side]; kept in ``store`` under a digest of the files.

    Raises ``DamagedFile`` if a file is missing or damaged.
    """
    stored = store / f"{name}-{digest_of(folder, listings)}.npz"
    arrays = read_cache(stored)
    if arrays is None:
        print(f"decoding the images of {folder} (once)", file=sys.stderr)
        arrays = [decode(listing, side) for listing in listings]
        write_cache(stored, arrays)
    return arrays


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


def decode(listing: Listing, side: int) -> NDArray[np.uint8]:
    """Decode images to uint8 [n, 3, side, side], in threads because Pillow releases the interpreter lock.

    Raises ``DamagedFile`` if an image cannot be decoded or has another size.
    """
    from PIL import Image

    images = np.empty((len(listing), 3, side, side), np.uint8)
    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)

    def decode_one(position: int) -> None:
        path = listing[position][0]
        try:
            with Image.open(path, formats=("JPEG", "PNG")) as image:
                if image.size != (side, side):  # before decoding: a small file can declare a huge image
                    raise ValueError(f"{image.width} x {image.height} pixels, expected {side} x {side}")
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
