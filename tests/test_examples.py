"""The notebooks and the plugin package of examples/ run, and docs/extending.md prints the package word for word."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fl_platform as fl

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PLUGIN = EXAMPLES / "plugin"


def code_cells(notebook: Path) -> list[str]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", ["first_experiment", "own_method"])
def test_a_notebook_runs_from_its_first_cell_to_its_last(name: str, tmp_path: Path) -> None:
    """In a kernel where nbclient is installed, otherwise its cells one after another in a fresh process."""
    notebook = EXAMPLES / f"{name}.ipynb"
    if importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"):
        source = (
            "import nbformat, nbclient, sys; book = nbformat.read(sys.argv[1], 4); "
            "nbclient.NotebookClient(book, timeout=600).execute()"
        )
    else:
        script = tmp_path / "cells.py"
        script.write_text("\n\n".join(code_cells(notebook)), encoding="utf-8")
        source = f"import runpy; runpy.run_path({str(script)!r})"
    done = subprocess.run(
        [sys.executable, "-c", source, str(notebook)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(tmp_path.glob("runs/**/result.json"))


def test_notebooks_are_kept_without_outputs() -> None:
    for notebook in EXAMPLES.glob("*.ipynb"):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), notebook


PLUGIN_RUNS = """
import sys
from fl_platform.cli import main
common = ["plugins=[fl_example]", "data.name=stripes", "tracking.mode=disabled", "trainer.enable_progress_bar=false"]
for own in (["algorithm.name=fedclip", "algorithm.max_norm=0.5", "num_rounds=2"],
            ["algorithm.name=fedscale", "server_lr=0.1", "num_rounds=12"]):
    assert main(["run", *common, *own]) == 0
"""


def test_the_plugin_package_trains(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN_RUNS], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    tops = [float(value) for value in re.findall(r"top_accuracy=([\d.]+)", done.stdout)]
    assert len(tops) == 2
    assert tops[1] > 0.5, "four classes: chance is 0.25"
    rows = [path.read_text(encoding="utf-8") for path in tmp_path.glob("runs/*/attempts/*/rounds.jsonl")]
    assert any("clip/share" in row for row in rows)
    assert any("scale/largest_square" in row for row in rows)


BEHIND = {"count_classes", "frozen_logits", "step_counts"}
"""Fields that other fields of the contract are made from."""


def test_the_page_has_every_field_of_the_contract() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    words = set(re.findall(r"`(\w+)", page[page.index("## The contract") : page.index("## A data set")]))
    inputs = (fl.LocalStart, fl.LocalSurvey, fl.LocalBatch, fl.LocalStep, fl.LocalRun, fl.Updates, fl.Federation)
    for kind in (fl.Algorithm, *inputs):
        public = {name for name in {*vars(kind), *kind.__annotations__} if not name.startswith("_")}
        assert public - words <= BEHIND, kind


def test_the_page_prints_the_package() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for name in ("fedclip", "fedscale", "stripes", "small_cnn"):
        assert (PLUGIN / "fl_example" / f"{name}.py").read_text(encoding="utf-8") in blocks, name
