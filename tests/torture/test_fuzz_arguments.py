"""Any arguments after any command end in success or in one sentence and exit code 2, and a refusal leaves no file."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from fl_platform.config.schema import known_keys
from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.ledger import Ledger
from tests.sweeps.small_sweeps import write_sweep
from tests.synthetic_logs import make_log, write_wandb_file
from tests.torture.hostile import Tally, check_sentence, explore, texts

SMALL = (
    *("plugins=[]", "data.name=digits", "num_workers=4", "cohort_size=2", "num_rounds=1", "local_steps=1"),
    *("batch_size=8", "model.name=mlp", "model.width=null", "threads=1", "tracking.mode=disabled"),
    *("output.dir=runs", "algorithm.name=fedavg", "trainer={enable_progress_bar: false}"),
)
"""Last, so that whatever came before them costs little."""

keys = st.sampled_from(
    [*known_keys(), "algorithm.name", "algorithm.mu", "trainer.devices", "model.options.x", "data", "algorithm", "sed"]
)
pairs = st.tuples(keys, texts).map("=".join)
args = st.one_of(pairs, pairs.map("--".__add__), texts)
sound = st.sampled_from(["seed=3", "local_lr=0.05", "--algorithm.name=scaffold", "data.partition=iid", "server_lr=0.5"])

free = (sound | sound | args).map(lambda word: [word])  # half of them sound, so that one hostile word meets sound ones
places = st.one_of(texts, st.just("/dev/null/x")).filter(lambda text: not text.startswith(("/", "~", "..")))


def options(*names: str, of: st.SearchStrategy[str] = texts) -> st.SearchStrategy[list[str]]:
    """Options with a value, joined with one, or without."""
    return st.tuples(st.sampled_from(names), of, st.integers(0, 2)).map(
        lambda drawn: [[drawn[0], drawn[1]], [f"{drawn[0]}={drawn[1]}"], [drawn[0]]][drawn[2]]
    )


def one_of(*lines: str) -> st.SearchStrategy[list[str]]:
    return st.sampled_from([line.split() for line in lines])


def numbered(before: str, key: str) -> st.SearchStrategy[list[str]]:
    """Sound arguments of which there are many: a number behind ``before`` and ``key``."""
    return st.integers(0, 10**6).map(lambda number: f"{before} {key}{number}".split())


FILES = tuple(f"sweep{number}.yaml" for number in range(10))
checked = st.lists(st.sampled_from(FILES), min_size=1, max_size=3)
"""Sound arguments of ``sweep check``: it takes several files."""


LINES: dict[str, tuple[tuple[str, ...], st.SearchStrategy[list[str]], tuple[str, ...]]] = {
    "run": (
        ("run",),
        free | options("--config", "--skip-finished", "--drop-unused", "--continue") | options("--json", of=places),
        SMALL,
    ),
    "run, alone": (("run", "num_rounds=0"), free, ()),
    "run, to resume": (("run", "--resume"), free, ()),
    "config": (("config",), free | options("--config") | one_of("--config keys.yaml"), ()),
    "list": (("list",), free | options("--plugins", "--group", "--grep") | one_of("algorithms", "presets"), ()),
    "data": (("data",), free | options("--root") | one_of("list", "get", "partition"), ()),
    "data partition": (("data", "partition"), free | options("--out", of=places), SMALL),
    "doctor": (("doctor",), free | options("--json"), ()),
    "sweep": (
        ("sweep",),
        free | one_of("check", "status", "best", "stop", "run nowhere"),
        (),
    ),
    "sweep check": (("sweep", "check"), free | one_of("sweep.yaml"), ()),
    "sweep status": (("sweep", "status"), free | one_of("sweep.yaml", "launched"), ()),
    "sweep best": (
        ("sweep", "best"),
        free | one_of("sweep.yaml", "launched") | options("--by", "--select-on") | options("--write", of=places),
        (),
    ),
    "sweep run": (("sweep", "run"), free | options("--jobs", "--cap", "--retries", "--address"), ("nowhere.yaml",)),
    "report": (
        ("report",),
        options("--source", "--rows", "--columns", "--value", "--where", "--format")
        | free
        | one_of("--source logs", "--rows algorithm.name", "all"),
        (),
    ),
    "report, free table": (
        ("report", "--source", "logs", "--rows", "seed"),
        options("--columns", "--value", "--where", "--format") | one_of("--where seed=0", "--columns algorithm.name"),
        (),
    ),
    "dashboard": (("dashboard",), free | options("--port", "--no-browser"), ("nowhere",)),
    "publish": (
        ("publish",),
        free | options("--source", "--title") | one_of("a/b", "--source logs"),
        ("--offline-out", "out"),
    ),
    "demo": (("demo", "nothing"), free, ()),
    "no command": ((), free, ()),
}
"""Arguments before, drawn parts, arguments after."""

SOUND = {"list": "algorithms", "sweep check": "sweep.yaml", "sweep status": "launched", "publish": "a/b --source logs"}
"""What makes a line acceptable that is not so without any arguments between."""

SOUND_LINES = {
    "config": numbered("", "seed="),
    "sweep": checked.map(lambda files: ["check", *files]),
    "sweep check": checked,
    "publish": numbered("a/b --source logs", "--title="),
}
"""Whole lines that are sound, drawn beside those of parts where parts alone are hardly ever."""

FEW = {
    "list": "kinds, groups and the words of names",
    "doctor": "itself and --json",
    "sweep status": "the file and the directory of one sweep",
    "no command": "itself",
}
"""Lines of which few are sound: a share of hundreds of different ones would not be."""

REFUSED = {
    "run, alone": "num_rounds=0 is not allowed, so that no drawn word starts a long run",
    "run, to resume": "there is no checkpoint",
    "sweep best": "no trial has finished",
    "sweep run": "there is no such sweep",
    "dashboard": "it would go on for ever",
    "demo": "it takes no argument, and without one it would run for a minute",
    "data": "it needs an action, whose lines are others'",
}
"""Lines of which none can be accepted, and why."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a configuration, a sweep, launched once, and some logs."""
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(place / "home"))
    (place / "keys.yaml").write_text(yaml.safe_dump({"seed": 1, "data": {"name": "digits"}}), encoding="utf-8")
    sweep = read_sweep(write_sweep(place / "sweep.yaml", {"seed": {"values": [0, 1]}}), [])
    sweep.write_copy(place / "launched")
    for name in FILES:
        shutil.copyfile(place / "sweep.yaml", place / name)
    with Ledger(place / "launched") as ledger:
        assert ledger.entries() == []
    for seed in range(2):
        write_wandb_file(place / "logs" / "wandb" / f"run-{seed}" / f"run-{seed}.wandb", make_log(seed=seed))
    return place


def files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file() and ".cache" not in path.parts}


@pytest.mark.parametrize("name", LINES)
def test_any_arguments(
    name: str, here: Path, scale: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    before, parts, after = LINES[name]
    codes = {"doctor": (0, 1, 2), "run": (0, 2, 3)}.get(name, (0, 2))
    present = files(here)
    tally = Tally()

    def check(drawn: list[list[str]]) -> None:
        args = [*before, *(word for part in drawn for word in part), *after]
        outcome = tally.judge(*(word.replace("\0", "") for word in args), codes=codes)  # no argument can hold a NUL
        left = files(here) - present
        assert not left or outcome.code != 2, f"{args} was refused and left {left}"
        assert not [path for path in left if "partial" in path.name or path.suffix == ".tmp"]
        for path in left:
            path.unlink()
        shutil.rmtree(here / "runs", ignore_errors=True)

    count = scale(4, 500)
    accepted = None if name in REFUSED else [SOUND[name].split()] if name in SOUND else []
    lines = st.lists(parts, max_size=3)
    if name in SOUND_LINES:
        lines |= SOUND_LINES[name].map(lambda words: [words])
    explore(lines, check, count, sound=accepted)
    if name in REFUSED:
        record_property(f"command lines of {name}", tally.cases)
    else:
        tally.record(record_property, f"command lines of {name}", at_least=0.0 if name in FEW else 0.05)


@pytest.mark.parametrize(
    "args", [["run", "sed=1"], ["run", "seed=\x1b[31m"], ["report", "--rows", "x"], ["sweep", "check", "no.yaml"]]
)
def test_a_process_says_the_sentence_and_exits_with_2(
    args: list[str], tmp_path: Path, scale: Callable[[int, int], int]
) -> None:
    if args[0] != "run" and not scale(0, 1):
        pytest.skip("imports for seconds: with --torture")
    done = subprocess.run([sys.executable, "-m", "fl_platform", *args], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    check_sentence(tuple(args), done.stderr.decode())
    assert list(tmp_path.iterdir()) == []
