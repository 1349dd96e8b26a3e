"""No secret of the environment in what further loggers, exports, figures and notebooks leave; hostile names inert."""

import base64
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tests.sweeps.small_sweeps import SMALL
from tests.torture.test_secrets import ROOT, contents

NAMES = ("WANDB_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DATABASE_PASSWORD")
NAMES += ("MLFLOW_TRACKING_PASSWORD", "HF_TOKEN", "GITHUB_TOKEN", "PGPASSWORD")
COMMANDS = """
import sys
from fl_platform.cli import main

small, keep = sys.argv[1:], ["checkpoint.keep_finished=true", "checkpoint.every=1", "checkpoint.keep_best=true"]
codes = [main(["run", *small, *keep, "output.dir=runs", "tracking.also=[csv,tensorboard,mlflow]", "seed=5"])]
import pathlib
run = next(path.parent.name for path in pathlib.Path("runs").glob("*/result.json"))
for form, which in (("state_dict", "last"), ("torchscript", "best"), ("exported_program", "last")):
    codes.append(main(["export", run, "--which", which, "--to", f"out/{form}.pt", "--format", form]))
codes.append(main(["figure", "curves", "--source", "runs", "--out", "out/curves.pdf"]))
codes.append(main(["figure", "curves", "--source", "runs", "--out", "out/curves.svg"]))
codes.append(main(["report", "all", "--source", "runs", "--archive", "--html"]))
codes.append(main(["why", run]))
codes.append(main(["run", *small, "output.dir=runs", "plugins=[leaky]", "algorithm.name=leaky"]))
print("codes", codes)
"""
LEAKY = """
from dataclasses import dataclass
from fl_platform import Algorithm

@dataclass(eq=False)
class Leaky(Algorithm, name="leaky", label="Leaky"):
    def local_direction(self, step):
        import os
        password = os.environ["DATABASE_PASSWORD"]  # in a variable of the frame that fails
        raise RuntimeError("cannot connect")
"""
NOTEBOOK = """import fl_platform as fl
result = fl.run({keys}, output={{"dir": "runs"}}, seed=6)
display(result.rounds.tail(2))
result"""


def test_no_secret_in_further_loggers_exports_figures_and_notebooks(
    tmp_path: Path, scale: Callable[[int, int], int]
) -> None:
    if not scale(0, 1):
        pytest.skip("a minute of MLflow and Jupyter: only with --torture")
    planted = {name: secrets.token_hex(20) for name in NAMES}
    netrc = secrets.token_hex(20)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text(f"machine api.wandb.ai\n  login user\n  password {netrc}\n")
    (home / ".netrc").chmod(0o600)
    work = tmp_path / "work"
    (work / "reports" / "all").mkdir(parents=True)
    (work / "reports" / "all" / "report.yaml").write_text("tables: [{kind: statistic, name: top, select: best}]\n")
    (work / "leaky.py").write_text(LEAKY)
    keys = dict(key.split("=", 1) for key in SMALL)
    cells = [nbformat.v4.new_code_cell(NOTEBOOK.format(keys=keys))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), work / "try.ipynb")
    own = {**os.environ, **planted, "HOME": str(home), "PYTHONPATH": os.pathsep.join([str(work), str(ROOT)])}
    own |= {name: str(tmp_path / "places") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    own |= {"WANDB_MODE": "offline"}
    own.pop("FL_DATA_ROOT", None)
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *SMALL], cwd=work, env=own, capture_output=True, check=False, timeout=600
    )
    assert b"codes [0, 0, 0, 0, 0, 0, 0, 0, 1]" in done.stdout, done.stdout[-1000:] + done.stderr[-3000:]
    script = "import nbformat, nbclient; n = nbformat.read('try.ipynb', 4); nbclient.NotebookClient(n).execute(); "
    command = [sys.executable, "-c", f"{script}nbformat.write(n, 'done.ipynb')"]
    noted = subprocess.run(command, cwd=work, env=own, capture_output=True, check=False, timeout=600)
    assert noted.returncode == 0, noted.stderr[-3000:]
    forms = [
        form
        for one in (*planted.values(), netrc)
        for form in (one.encode(), base64.b64encode(one.encode()), base64.b64encode(f"api:{one}".encode()))
    ]
    files = [path for path in work.rglob("*") if path.is_file() and path.suffix != ".py"]
    kinds = {path.suffix for path in files}
    assert {".csv", ".db", ".pt", ".pdf", ".svg", ".parquet", ".html", ".ipynb", ".txt", ".ckpt", ".wandb"} <= kinds
    assert any("tfevents" in path.name for path in files)
    found = [path for path in files if any(form in part for part in contents(path) for form in forms)]
    assert found == []
    screens = done.stdout + done.stderr + noted.stdout + noted.stderr
    assert not [form for form in forms if form in screens]


HOSTILE = "<img src=x>$\\input{x}|[a](javascript:b)\u202e"
PLUGIN = f"""
from dataclasses import dataclass
from fl_platform import Algorithm

@dataclass(eq=False)
class Hostile(Algorithm, name="hostile", label={HOSTILE!r}):
    pass
"""


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # so long a label leaves no room
def test_hostile_names_are_inert_in_exports_cards_pages_tables_and_figures(
    tmp_path: Path, scale: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not scale(0, 1):
        pytest.skip("only with --torture; tests/reporting and tests/dashboard have samples")
    import json

    from fl_platform.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "hostile_names.py").write_text(PLUGIN)
    keys = [*SMALL, "plugins=[hostile_names]", "algorithm.name=hostile", "checkpoint.keep_finished=true"]
    keys += [
        f"tracking.group={HOSTILE}",
        f"tracking.tags=['{HOSTILE[:60]}']",
        "tracking.mode=disabled",
        "output.dir=runs",
    ]
    assert main(["run", *keys, "tracking.also=[csv]"]) == 0
    run = next(Path("runs").glob("*/result.json")).parent.name
    assert main(["export", run, "--to", "out/m.pt"]) == 0
    assert json.loads(Path("out/m.pt.json").read_text())["method"]["label"] == HOSTILE
    Path("reports/all").mkdir(parents=True)
    Path("reports/all/report.yaml").write_text(
        "tables: [{kind: pivot, name: top, rows: [algorithm.name], columns: [seed], value: top_accuracy},"
        " {kind: statistic, name: best, select: best}]\nfigures: [{name: curves, kind: curves}]\n"
    )
    assert main(["report", "all", "--source", "runs", "--html", "--archive"]) == 0
    assert main(["figure", "curves", "--source", "runs", "--out", "out/c.svg"]) == 0
    for page in [*Path("reports").rglob("*.html"), *Path(".").rglob("*.svg")]:
        assert "<img src=x" not in page.read_text(errors="replace"), page
    for tex in Path("reports").rglob("*.tex"):
        assert "\\input{x}" not in tex.read_text(), tex
    for text in Path("reports").rglob("*.md"):
        assert not re.search(r"(?<!\\)<img|(?<!\\)\[a", text.read_text()), text
