"""How kernels are compiled: by numba, once for each version of them, of numba and of the CPU.

Machine code is kept in the user's cache, in a directory named after the sources whose constants it contains; numba
itself tells CPUs and its own versions apart. To compile takes a process that trains GradMA 2.6 CPU-s; to read what is
kept takes 0.4, and 30 MB less memory.
"""

import hashlib
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import platformdirs

Function = Callable[..., Any]


@cache
def directory() -> Path | None:
    """Where the machine code of these sources is kept; None where nothing can be written."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted([*(package / "kernels").glob("*.py"), *(package / "qp").glob("*.py")]):
        digest.update(source.read_bytes())
    place = Path(platformdirs.user_cache_dir("fl_platform")) / "compiled" / digest.hexdigest()[:24]
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / ".writable").touch()
    except OSError:
        return None
    return place


def compiled(function: Function) -> Function:
    """Compile a function at its first call, with IEEE arithmetic and without Python's lock."""
    return _compile(function, fastmath=False)


def vectorised(function: Function) -> Function:
    """As ``compiled``, but with sums in any order, and a product and its sum in one instruction.

    Numbers that are not finite stay what they are.
    """
    return _compile(function, fastmath={"reassoc", "contract"})


def _compile(function: Function, **options: Any) -> Function:
    config: Any = numba.config
    place, earlier = directory(), config.CACHE_DIR
    config.CACHE_DIR = "" if place is None else str(place)  # read while a function is decorated
    try:
        made: Function = numba.njit(nogil=True, error_model="numpy", cache=place is not None, **options)(function)
    finally:
        config.CACHE_DIR = earlier
    return made


def ahead(call: Callable[[], object]) -> None:
    """Compile what ``call`` uses, before anything is timed; machine code that cannot be read is made again."""
    try:
        call()
    except Exception:  # a damaged file can fail in any way
        place = directory()
        if place is None:
            raise
        shutil.rmtree(place, ignore_errors=True)
        call()
