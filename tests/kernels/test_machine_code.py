"""Machine code of kernels is kept between processes, made again where damaged, and loaded without numba."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fl_platform.kernels import machine_code

PROGRAM = """
import sys
import torch
from fl_platform.kernels import worker_projection

worker_projection.compile_projection(torch.device("cpu"), torch.float32)
was_compiled = "numba" in sys.modules
columns = [torch.randn(2, 50, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
found = worker_projection.project_stack(columns)
print(was_compiled, found.vectors.numpy().tobytes().hex())
"""


def run(cache: Path, **more: str) -> tuple[bool, str]:
    """Whether a fresh process compiled, and a projection of it."""
    variables = {"XDG_CACHE_HOME": str(cache), "PATH": "", "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables, check=True)
    was_compiled, bits = done.stdout.split()
    return was_compiled == "True", bits


@pytest.mark.skipif(sys.platform != "linux", reason="the cache of the user is moved by a variable of Linux")
def test_machine_code_is_kept_and_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    was_compiled, bits = run(tmp_path)
    assert was_compiled
    assert run(tmp_path) == (False, bits)
    [file] = tmp_path.rglob("*.project_float32.o")
    whole = file.read_bytes()
    for damaged in (whole[:100], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"", b"{}\n", b"\xff\n\xff"):
        file.write_bytes(damaged)
        assert machine_code.read(file) is None
    assert run(tmp_path, NUMBA_DISABLE_JIT="1") == (True, bits)
    assert machine_code.read(file) is not None


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "fl_platform").write_text("a file where the directory would be")
    assert run(tmp_path)[0]


def test_a_kernel_that_calls_something_else_is_refused() -> None:
    with pytest.raises(RuntimeError, match="takes_gamma calls numba_gamma; compiled kernels may call expf"):
        machine_code.compile_function("tests.kernels.takes_gamma", "takes_gamma", "n")


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm, which lists the symbols of object files, is not installed")
@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in machine_code.ENTRIES.items() for name in names]
)
def test_machine_code_calls_only_what_it_may(module: str, name: str, tmp_path: Path) -> None:
    """One unknown name, and none of them would be found."""
    place, arguments = tmp_path / "code.o", machine_code.ENTRIES[module][name]
    place.write_bytes(machine_code.compile_function(f"fl_platform.kernels.{module}", name, arguments)[1])
    listed = subprocess.run(["nm", "--undefined-only", place], capture_output=True, text=True, check=True).stdout
    undefined = {line.split()[-1] for line in listed.splitlines()}
    assert undefined <= {*machine_code.CALLED, "_GLOBAL_OFFSET_TABLE_"}


OTHER_PROCESSOR = """
import sys
import pytest
from fl_platform.kernels import machine_code

machine_code.LANES = int(sys.argv[1])
machine_code._place = lambda *_: None  # what is compiled here is for this process only
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(
    ("lanes", "tested"),
    [
        (8, "test_perceptron.py"),
        (8, "test_perceptron_scores.py"),
        (8, "test_linear.py"),
        (4, "test_row_products.py"),
    ],
)
def test_processors_with_shorter_vectors_compute_the_same(lanes: int, tested: str) -> None:
    """AVX2 has registers for 8 floats; perceptrons and linear layers are not compiled for less."""
    place = Path(__file__).with_name(tested)
    command = [sys.executable, "-c", OTHER_PROCESSOR, str(lanes), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
