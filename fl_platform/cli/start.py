"""How a command imports torch and Lightning: without the garbage collector, and without what it does not use."""

import atexit
import contextlib
import gc
import sys
from collections.abc import Iterator

from fl_platform.cli import deferred


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Leave the garbage collector out while torch and Lightning are imported, and what they made for good.

    They make a million objects that stay until the end, and the collector would look through all of them every time
    they have grown by a quarter, and again in long runs and when the process ends: a sixth of the time that `run` takes
    to its first round. Triton, which comes with builds of torch for CUDA, prints a list of everything it made that is
    not freed: where it was imported, the process ends with one collection, in some 0.6 s.
    """
    if "lightning" in sys.modules or not gc.isenabled():  # later calls would also keep what is garbage by now
        yield
        return
    deferred.install()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if "triton" in sys.modules:
            atexit.register(gc.disable)
            atexit.register(gc.unfreeze)
