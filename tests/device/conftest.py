"""Trials of engines go to a cache of the tests' own; kernels in Triton are run by its interpreter."""

import os
import tempfile

scratch = tempfile.TemporaryDirectory(prefix="fl_platform-device-tests-")
os.environ["XDG_CACHE_HOME"] = scratch.name
os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported
