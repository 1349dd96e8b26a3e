"""Trials of engines go to a cache of the tests' own."""

import os
import tempfile

scratch = tempfile.TemporaryDirectory(prefix="fl_platform-device-tests-")
os.environ["XDG_CACHE_HOME"] = scratch.name
