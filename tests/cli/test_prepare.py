"""``prepare`` compiles what is not kept yet, and says where nothing can be kept."""

import pytest

from fl_platform.cli import main
from fl_platform.kernels import machine_code


@pytest.fixture(autouse=True)
def one_function(monkeypatch):
    monkeypatch.setattr(machine_code, "ENTRIES", {"compiled_projection": {"solve_all": "nnnx"}})


def test_what_is_compiled_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine_code, "directory", lambda: tmp_path / "fl_platform" / "compiled" / "digest")
    assert main(["prepare"]) == 0
    compiled, ready = capsys.readouterr().out.splitlines()
    assert compiled.startswith("compiled compiled_projection.solve_all in ")
    assert ready == f"ready: {tmp_path / 'fl_platform'}"
    assert machine_code.kept_code("compiled_projection", "solve_all") is not None
    assert main(["prepare"]) == 0
    assert capsys.readouterr().out == f"{ready}\n"


@pytest.mark.parametrize("has_home", [True, False])
def test_a_cache_that_cannot_be_written_is_named(has_home, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("where the directory would be")
    monkeypatch.setattr(machine_code, "directory", lambda: tmp_path / "file" / "digest" if has_home else None)
    assert main(["prepare"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "cannot be written; commands work without it" in error
    assert "XDG_CACHE_HOME" in error
