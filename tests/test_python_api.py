"""The names of ``fl_platform``: fast to import, typed, and the same functions as in the packages they belong to."""

import ast
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import fl_platform as fl
from fl_platform.runs import archive
from fl_platform.runs.sources import read

PACKAGE = Path(fl.__file__).parent
MOST_SECONDS_TO_IMPORT = 0.3
TRIAL = {"num_workers": 10, "cohort_size": 2, "local_steps": 1, "num_rounds": 2, "tracking.mode": "disabled"}


def test_every_public_name_is_there_and_declared_to_type_checkers():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [declared] = [node for node in tree.body if isinstance(node, ast.If)]
    names = {alias.asname or alias.name for node in declared.body for alias in node.names}
    assert names == set(fl.__all__) <= set(dir(fl))
    assert all(getattr(fl, name) is not None for name in fl.__all__)
    assert (PACKAGE / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fl.nothing


def test_the_import_alone_is_fast_and_brings_nothing_heavy():
    code = (
        "import sys, time; t = time.process_time(); import fl_platform; t = time.process_time() - t;"
        "assert not {'torch', 'pandas', 'lightning', 'wandb', 'matplotlib'} & set(sys.modules); print(t)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < MOST_SECONDS_TO_IMPORT


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Two methods with two seeds each, from a mapping, in a thread that is not the main one."""
    output = tmp_path_factory.mktemp("runs")
    definition = {
        "name": "two methods",
        "parameters": {
            "algorithm.name": {"values": ["fedavg", "fedprox"]},
            "algorithm.mu": {"value": 0.1},
            "seed": {"values": [0, 1, 2]},
        },
    }
    results = []
    keys = {**TRIAL, "output.dir": output, "seed": [0, 1]}
    thread = threading.Thread(target=lambda: results.append(fl.sweep(definition, keys, jobs=2)))
    thread.start()
    thread.join()
    fl.run(TRIAL, output={"dir": output}, seed=7, progress=False)
    return results[0]


def test_a_sweep_from_a_mapping_runs_every_trial(swept):
    assert (swept.status.done, swept.status.failed, swept.is_interrupted) == (4, [], False)
    runs = swept.runs()
    assert sorted(zip(runs.summary["algorithm.name"], runs.summary["seed"], strict=True)) == [
        ("fedavg", 0),
        ("fedavg", 1),
        ("fedprox", 0),
        ("fedprox", 1),
    ]
    assert (swept.directory / "sweep.yaml").is_file()


def test_runs_are_loaded_from_directories_results_and_archives(swept, tmp_path):
    everything = fl.load_runs(swept)
    assert len(everything.runs) == 5, "the output directory also holds a run of no sweep"
    archive.write(read([swept.output]), tmp_path / "runs.parquet")
    archived = fl.load_runs(tmp_path / "runs.parquet")
    for name in ("run_id", "status", "algorithm.name", "test/top_accuracy"):
        assert archived.summary[name].tolist() == everything.summary[name].tolist()
    assert archived.rounds["test/accuracy"].tolist() == everything.rounds["test/accuracy"].tolist()
    assert len(fl.load_runs([swept, str(tmp_path / "runs.parquet")]).runs) == 5
    with pytest.raises(fl.UserError, match="no such file or directory"):
        fl.load_runs("nowhere")


def test_a_table_is_a_frame(swept):
    frame = fl.table(swept.runs())
    assert frame.index.tolist() == ["FedAvg", "FedProx"]
    assert frame.columns.tolist() == [("Digits, S=2", "ω=0.1")]
    numbers = fl.table(swept.runs(), numbers=True)
    assert numbers["n"].tolist() == [2, 2]
    row = numbers.iloc[0]
    assert frame.iloc[0, 0] == f"{row['mean']:.2f}±{row['std_ddof1']:.2f} (n=2)"
    free = fl.table(swept, rows="algorithm.name", columns="seed", where={"algorithm.name": "fedavg"})
    assert (free.index.tolist(), free.columns.tolist()) == (["FedAvg"], ["seed=0", "seed=1", "seed=7"])


def test_curves_are_a_figure_that_a_notebook_shows(swept):
    figure = fl.curves(swept.runs())
    assert isinstance(figure, Figure)
    [axis] = figure.axes
    assert axis.get_legend_handles_labels()[1] == ["FedAvg", "FedProx"]
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert len(fl.curves(swept.runs(), "train/loss", by="seed").axes) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda runs: fl.table(runs, "nonsense"), "value=nonsense is not known"),
        (lambda runs: fl.table(runs, columns="seed"), "columns=seed needs rows"),
        (lambda runs: fl.table(runs, where={"seed": 99}), "no run has this value"),
        (lambda runs: fl.curves(runs, "nonsense"), "no finished run has what this figure shows"),
        (lambda runs: fl.curves(runs, smooth=0), "smooth=0 is not allowed"),
        (lambda runs: fl.curves(runs, smooth="2"), "smooth=2 is not allowed"),
        (lambda runs: fl.curves(runs, select="bets"), "select=bets is not known; .*did you mean 'best'"),
        (lambda runs: fl.load_runs(None), "None is no source of runs"),
        (lambda runs: fl.load_runs(["runs", 3]), "3 is no source of runs"),
        (lambda runs: fl.sweep(["seed"]), "is neither the path of a YAML nor a mapping"),
        (lambda runs: fl.sweep({"parameters": {"model.name": {"value": "__main__.Net"}}}), "defined in this script"),
        (lambda runs: fl.sweep({"parameters": {"nonsense": {"value": 1}}}), "unknown key 'nonsense'"),
        (lambda runs: fl.sweep({}), "parameters=None is not allowed"),
        (lambda runs: fl.sweep("nowhere.yaml"), "nowhere.yaml: no such file"),
        (lambda runs: fl.sweep({"parameters": {"seed": {"value": 1}}}, jobs=0), "jobs=0 is not allowed"),
    ],
)
def test_what_is_refused_is_a_user_error(call, message, swept):
    with pytest.raises(fl.UserError, match=message):
        call(swept.runs())


def test_the_frames_of_no_runs_can_be_read():
    empty = fl.Runs(pd.DataFrame({"run_id": [], "status": []}))
    assert empty.summary.empty
    assert list(empty.rounds) == ["run_id", "round"]
