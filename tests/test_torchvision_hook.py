"""The import hook for torchvision, in real interpreters: against the installed packages and against small fake ones."""

import subprocess
import sys
from pathlib import Path

import pytest


def python(code: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter whose import path starts with ``paths``."""
    start = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False)


def write_torchvision(folder: Path, meta_registrations: str, *, has_ops: bool = True) -> Path:
    """A torchvision whose import runs the given ``_meta_registrations``; returns where to import it from."""
    package = folder / "torchvision"
    package.mkdir()
    package.joinpath("__init__.py").write_text("from torchvision import extension, _meta_registrations\n")
    package.joinpath("extension.py").write_text(f"def _has_ops(): return {has_ops}\n")
    package.joinpath("_meta_registrations.py").write_text(meta_registrations)
    return folder


def test_torchvision_and_lightning_import_after_the_package() -> None:
    code = (
        "import fl_platform, torchvision, lightning\n"
        "from torchvision import datasets, transforms\n"
        "assert datasets.MNIST and transforms.ToTensor\n"
        "from torchvision.extension import _has_ops\n"
        "assert fl_platform._torchvision.is_operator_missing() is not _has_ops()\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_a_healthy_module_is_what_it_would_be_without_the_hook(tmp_path: Path) -> None:
    path = write_torchvision(tmp_path, "VALUE = 7\nsource = __file__\n")
    show = (
        "import torchvision._meta_registrations as m, importlib\n"
        "print(sorted(vars(m)), m.VALUE, m.source, type(m.__loader__), type(m.__spec__.loader), m.__spec__.origin)\n"
        "print(importlib.reload(m).VALUE)\n"
    )
    plain = python(show, path)
    hooked = python("import fl_platform\n" + show, path)
    asked = python("import fl_platform, torchvision; print(fl_platform._torchvision.is_operator_missing())", path)
    assert plain.returncode == 0, plain.stderr
    assert hooked.stdout == plain.stdout
    assert asked.stdout == "False\n"


def test_an_absent_operator_leaves_the_module_empty(tmp_path: Path) -> None:
    failing = "early = 1\nraise RuntimeError('operator torchvision::nms does not exist')\n"
    path = write_torchvision(tmp_path, failing, has_ops=False)
    code = (
        "import fl_platform, torchvision\n"
        "print([name for name in vars(torchvision._meta_registrations) if not name.startswith('__')])\n"
        "print(fl_platform._torchvision.is_operator_missing())\n"
    )
    assert python(code, path).stdout == "[]\nTrue\n"
    assert python("import torchvision", path).returncode != 0  # the error is real: without the hook it is fatal


@pytest.mark.parametrize(
    ("statement", "has_ops"),
    [
        ("raise RuntimeError('operator torchvision::nms is registered twice')", True),
        ("raise ValueError('operator torchvision::nms does not exist')", False),
        ("import no_such_module", False),
    ],
)
def test_any_other_error_is_raised_unchanged(tmp_path: Path, statement: str, has_ops: bool) -> None:
    path = write_torchvision(tmp_path, statement + "\n", has_ops=has_ops)
    plain = python("import torchvision", path)
    hooked = python("import fl_platform\nimport torchvision", path)
    assert hooked.returncode == plain.returncode == 1
    assert hooked.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]


def test_installing_twice_adds_one_finder() -> None:
    code = (
        "before = len(sys.meta_path)\n"
        "import fl_platform\n"
        "fl_platform._torchvision.install()\n"
        "print(len(sys.meta_path) - before)\n"
    )
    assert python(code).stdout == "1\n"
