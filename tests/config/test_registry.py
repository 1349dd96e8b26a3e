"""Registries: names once, lookups with a hint, built-in packages imported when first asked for."""

import subprocess
import sys

import pytest

from fl_platform.algorithms import base
from fl_platform.config.registry import ALGORITHMS, DATASETS, MODELS, POLICIES, Registry, check_model_name
from fl_platform.errors import UserError


@pytest.mark.parametrize("registry", [ALGORITHMS, DATASETS, MODELS, POLICIES], ids=lambda registry: registry.key)
def test_built_in_names_are_there_and_a_misspelt_one_gets_a_hint(registry):
    name = registry.names()[0]
    assert name in registry
    assert registry.get(name) is dict(registry.items())[name]
    with pytest.raises(UserError, match=f"^{registry.key}={name}x is not known; allowed: .*; did you mean '{name}"):
        registry.get(f"{name}x")


def test_a_name_is_registered_once():
    registry: Registry[int] = Registry("some.name", "json")
    registry.add("one", 1)
    with pytest.raises(UserError, match=r"^some\.name=one is registered already; choose another name$"):
        registry.add("one", 2)
    assert registry.get("one") == 1
    with pytest.raises(UserError, match=r"algorithm\.name=fedavg is registered already"):

        class Another(base.Algorithm, name="fedavg"):
            pass


def test_a_definition_that_is_executed_again_replaces_the_first(monkeypatch):
    """As a cell of a notebook is."""
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._entries))
    cell = "class Cell(base.Algorithm, name='cell'): value = {}"
    for value in (1, 2):
        exec(cell.format(value), names := {"base": base, "__name__": "__main__"})
        assert ALGORITHMS.get("cell") is names["Cell"]
        assert ALGORITHMS.describe("cell").value == value
        assert ALGORITHMS.is_of_this_process("cell")
    for other in (cell.replace("Cell", "Other"), f"def make():\n    {cell.format(3)}\nmake()"):
        with pytest.raises(UserError, match=r"algorithm\.name=cell is registered already"):
            exec(other.format(3), {"base": base, "__name__": "__main__"})


def test_a_model_may_also_be_a_dotted_path():
    check_model_name("mlp")
    check_model_name("package.module.Network")
    for name in ("lenet", "package.", "a b.c"):
        with pytest.raises(UserError, match=r"model\.name=.* is not known"):
            check_model_name(name)


PROGRAM = """
import importlib, pkgutil, sys
import fl_platform.config
for module in pkgutil.iter_modules(fl_platform.config.__path__):
    importlib.import_module(f"fl_platform.config.{module.name}")
from fl_platform.config.registry import DATASETS
assert "torch" not in sys.modules
assert "mnist" in DATASETS
"""


def test_the_configuration_needs_no_torch_until_a_name_is_looked_up():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
