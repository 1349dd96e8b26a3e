"""Compiled kernels are kept between processes, made again where damaged, and compiled before the first round."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import torch
from fl_platform.kernels import worker_projection
from fl_platform.kernels.compiler import directory

worker_projection.compile_projection(torch.device("cpu"), torch.float32)
from fl_platform.kernels import compiled_projection

hits = sum(compiled_projection._project.stats.cache_hits.values())
columns = [torch.randn(2, 50, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
found = worker_projection.project_stack(columns)
assert len(compiled_projection._project.signatures) == 1  # what a round uses was compiled ahead
print(directory(), hits, found.vectors.numpy().tobytes().hex())
"""


def run(cache: Path) -> tuple[Path, bool, str]:
    """Where machine code is kept, whether it came from there, and a projection, of a fresh process."""
    variables = {"XDG_CACHE_HOME": str(cache), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables, check=True)
    place, hits, bits = done.stdout.split()
    return Path(place), int(hits) > 0, bits


@pytest.mark.skipif(sys.platform != "linux", reason="the cache of the user is moved by a variable of Linux")
def test_machine_code_is_kept_and_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    place, was_kept, bits = run(tmp_path)
    assert place.is_relative_to(tmp_path)
    assert not was_kept
    for file in place.rglob("*.nbc"):
        file.write_bytes(file.read_bytes()[:100])
    assert run(tmp_path) == (place, False, bits)
    assert run(tmp_path) == (place, True, bits)
