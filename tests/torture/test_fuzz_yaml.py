"""Damaged and hostile YAML: configurations, sweeps, chosen values, reports, and what a sweep directory holds."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from fl_platform.config.schema import known_keys
from fl_platform.reporting.report import FIGURES, TABLES
from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.ledger import Ledger
from tests.sweeps.small_sweeps import COMMAND, write_sweep
from tests.synthetic_logs import make_log, write_wandb_file
from tests.torture.hostile import Outcome, Tally, damaged, damaged_text, explore, judge, values

Scale = Callable[[int, int], int]
Note = Callable[[str, object], None]

KEYS = [*known_keys(), "data", "algorithm", "algorithm.name", "algorithm.mu", "trainer.devices", "model.options.a"]

CONFIG = """\
seed: 3
data:
  name: digits
  dirichlet_omega: 1e-1
algorithm: {name: gradma, memory_size: 20}
local_lr: 0.01
evaluation: {every: 2, targets: [0.5, 0.9]}
tracking.tags: [a, b]
trainer: {enable_progress_bar: false}
"""

SOUND: dict[str, Any] = {"local_lr": 0.1, "batch_size": 16, "evaluation": {"every": 2}, "server_lr": 1.0}
"""Keys that any configuration may have."""

SWEEP = """\
name: small
description: two seeds of two algorithms
method: grid
run_cap: 3
metric: {name: test/top_accuracy, goal: maximize}
early_terminate: {type: hyperband, min_iter: 3}
command: ["${env}", "${interpreter}", -m, fl_platform, run, --skip-finished, "${args_no_hyphens}"]
parameters:
  seed: {values: [0, 1]}
  algorithm.name: {values: [fedavg, scaffold]}
  local_lr: {value: 0.1}
  data:
    parameters:
      name: {value: digits}
"""

CHOSEN = """\
chosen:
  mnist_w0.1_s10:
    fedavg:
      keys: {local_lr: 0.01, server_lr: 1.0}
      runs: [a, b]
    gradma:
      keys:
        local_lr: 0.1
        algorithm.momentum_decay: 0.5
"""

REPORT = """\
title: Everything
sources: [../../logs]
where: {data.name: mnist}
select: best
seeds: 2
tables:
  - {kind: statistic, name: table1, value: top_accuracy, complete: true}
  - {kind: target, name: table2, unit: rounds}
  - {kind: pivot, name: free, rows: [algorithm.name], columns: [seed], value: top_accuracy}
  - {kind: significance, name: paired, reference: fedavg, where: {seed: [0, 1]}, title: Pairs}
  - {kind: paper_table1, name: beside}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def try_texts(text: str, path: Path, count: int, check: Callable[[], Outcome]) -> Tally:
    """The text as it is, which must be accepted, then damaged in so many ways."""
    tally = Tally()
    path.write_text(text, encoding="utf-8")
    assert tally.count(check()).code == 0
    for number in range(count):
        path.write_bytes(damaged_text(text, random.Random(number)))
        try:
            tally.count(check())
        except BaseException as error:
            error.add_note(f"case {number}: {path.read_bytes()!r}")
            raise
    return tally


def dumped(content: Any) -> str:
    return yaml.dump(content, Dumper=yaml.SafeDumper, allow_unicode=True)


def among(sound: dict[str, Any], keys: list[str]) -> st.SearchStrategy[dict[Any, Any]]:
    """Some of the sound entries with at most one hostile one among them, which gets past the first check."""
    some = st.sets(st.sampled_from([*sound])).map(lambda names: {name: sound[name] for name in sorted(names)})
    hostile = st.dictionaries(st.sampled_from(keys), values, max_size=1)
    return st.tuples(some, hostile).map(lambda drawn: {**drawn[0], **drawn[1]})


def mappings(keys: list[str]) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(st.sampled_from(keys) | values.filter(lambda key: isinstance(key, str)), values, max_size=4)


# --- configurations ---


def test_damaged_configurations(here: Path, scale: Scale, record_property: Note) -> None:
    count = scale(30, 1500)
    tally = try_texts(CONFIG, here / "c.yaml", count, lambda: judge("config", "--config", "c.yaml"))
    tally.record(record_property, "damaged --config files", at_least=0.08)


def test_hostile_configurations(here: Path, scale: Scale, record_property: Note) -> None:
    tally = Tally()

    def check(content: dict[Any, Any]) -> None:
        (here / "c.yaml").write_bytes(dumped(content).encode("utf-8", "surrogatepass"))
        tally.judge("config", "--config", "c.yaml")

    explore(mappings(KEYS) | among(SOUND, KEYS), check, scale(20, 1000), sound=SOUND)
    tally.record(record_property, "hostile --config files", at_least=0.1)


# --- chosen values ---


def test_damaged_chosen_values(here: Path, scale: Scale, record_property: Note) -> None:
    args = ("config", "chosen=c.yaml", "scenario=mnist_w0.1_s10", "algorithm.name=gradma")
    count = scale(15, 1000)
    tally = try_texts(CHOSEN, here / "c.yaml", count, lambda: judge(*args))
    tally.record(record_property, "damaged chosen= files", at_least=0.2)


def test_hostile_chosen_values(here: Path, scale: Scale, record_property: Note) -> None:
    tally = Tally()

    def check(keys: dict[Any, Any]) -> None:
        content = {"chosen": {"mnist_w0.1_s10": {"gradma": {"keys": keys}}}}
        (here / "c.yaml").write_bytes(dumped(content).encode("utf-8", "surrogatepass"))
        tally.judge("config", "chosen=c.yaml", "scenario=mnist_w0.1_s10", "algorithm.name=gradma")

    explore(mappings(KEYS) | among(SOUND, KEYS), check, scale(20, 1000), sound={"local_lr": 0.1})
    tally.record(record_property, "hostile chosen= files", at_least=0.1)


# --- sweeps ---


def test_damaged_sweeps(here: Path, scale: Scale, record_property: Note) -> None:
    count = scale(20, 1000)
    tally = try_texts(SWEEP, here / "s.yaml", count, lambda: judge("sweep", "check", "s.yaml"))
    tally.record(record_property, "damaged sweep files", at_least=0.08)


def test_hostile_parameters(here: Path, scale: Scale, record_property: Note) -> None:
    forms = st.fixed_dictionaries(
        {},
        optional={
            "value": values, "values": values | st.lists(values, max_size=3), "min": values, "max": values,
            "distribution": values | st.sampled_from(["uniform", "q_uniform", "int_uniform", "log_uniform_values"]),
            "q": values, "mu": values, "sigma": values, "probabilities": values, "parameters": values,
        },
    )  # fmt: skip

    tally = Tally()

    def check(drawn: tuple[str, dict[str, Any]]) -> None:
        method, parameters = drawn
        content = {"method": method, "command": COMMAND, "parameters": parameters}
        (here / "s.yaml").write_bytes(dumped(content).encode("utf-8", "surrogatepass"))
        tally.judge("sweep", "check", "s.yaml")

    swept: dict[str, Any] = {"seed": {"values": [0, 1]}, "local_lr": {"values": [0.1, 0.2]}, "num_rounds": {"value": 2}}
    parameters = st.dictionaries(st.sampled_from(KEYS), forms | values, max_size=3) | among(swept, KEYS)
    hostile = st.tuples(st.sampled_from(["grid", "random", "bayes"]), parameters)
    sound = st.fixed_dictionaries(
        {"num_rounds": st.just({"value": 2})},
        optional={
            "seed": st.sampled_from([{"values": [0, 1]}, {"value": 3}, {"min": 0, "max": 2}]),
            "local_lr": st.lists(st.floats(1e-6, 1), min_size=1, max_size=3, unique=True).map(lambda x: {"values": x}),
            "algorithm.name": st.sampled_from([{"value": "gradma"}, {"values": ["moon", "mifa"]}]),
        },
    )
    explore(hostile | st.tuples(st.just("grid"), sound), check, scale(20, 1000), sound=("grid", swept))
    tally.record(record_property, "hostile sweep parameters", at_least=0.1)


@pytest.mark.parametrize("name", ["sweep.yaml", "overrides.json", "ledger.sqlite"])
def test_damaged_sweep_directories(name: str, here: Path, scale: Scale, record_property: Note) -> None:
    sweep = read_sweep(write_sweep(here / "s.yaml", {"seed": {"values": [0, 1]}}), ["num_rounds=3"])
    sweep.write_copy(here / "d")
    with Ledger(here / "d") as ledger:
        ledger.propose([{"seed": 0}, {"seed": 1}])
    tally = Tally()
    assert tally.judge("sweep", "status", "d").code == 0
    sound = (here / "d" / name).read_bytes()
    extras = [b"[1]", b"{}", b"null", json.dumps(["sed=1"]).encode(), b"[" * 5000, b""]
    for number in range(scale(10, 300)):
        rng = random.Random(number)
        (here / "d" / name).write_bytes(extras[number] if number < len(extras) else damaged(sound, rng))
        tally.judge("sweep", "status", "d")
        judge("sweep", "best", "d")
    tally.record(record_property, f"damaged {name} of a sweep", at_least=0.02)


# --- reports ---


@pytest.fixture
def reports(here: Path) -> Path:
    for name, level in (("fedavg", 0.7), ("gradma", 0.9)):
        for seed in range(2):
            log = make_log(name, seed, level=level, rounds=10)
            write_wandb_file(here / "logs" / "wandb" / f"run-{log.run_id}" / f"run-{log.run_id}.wandb", log)
    (here / "reports" / "all").mkdir(parents=True)
    return here / "reports" / "all"


def build(reports: Path) -> Outcome:
    outcome = judge("report", "all", "--out", "out")
    out = reports.parents[1] / "out"
    assert outcome.code or (out / "report.md").is_file()
    assert not outcome.code or not out.exists(), f"{sorted(out.iterdir())} left: {outcome.err}"
    shutil.rmtree(out, ignore_errors=True)
    return outcome


def test_damaged_reports(reports: Path, scale: Scale, record_property: Note) -> None:
    count = scale(20, 1000)
    tally = try_texts(REPORT, reports / "report.yaml", count, lambda: build(reports))
    tally.record(record_property, "damaged report.yaml files", at_least=0.08)


def test_hostile_reports(reports: Path, scale: Scale, record_property: Note) -> None:
    names = [
        "kind",
        "name",
        "where",
        "title",
        "value",
        "rows",
        "columns",
        "select",
        "seeds",
        "unit",
        "grouping",
        "keys",
    ]
    table = st.tuples(st.sampled_from([*TABLES]), mappings(names)).map(lambda drawn: {"kind": drawn[0], **drawn[1]})
    figure = st.tuples(st.sampled_from([*FIGURES]), mappings(names)).map(lambda drawn: {"kind": drawn[0], **drawn[1]})
    content = st.fixed_dictionaries(
        {"sources": st.just(["../../logs"]) | values},
        optional={
            "tables": st.lists(table, max_size=2) | values, "figures": st.lists(figure, max_size=1) | values,
            "title": values, "where": values, "select": values, "seeds": values, "x": values,
        },
    )  # fmt: skip

    tally = Tally()

    def check(report: dict[str, Any]) -> None:
        (reports / "report.yaml").write_bytes(dumped(report).encode("utf-8", "surrogatepass"))
        tally.count(build(reports))

    explore(content, check, scale(20, 1000), sound={"sources": ["../../logs"], "title": "small"})
    tally.record(record_property, "hostile report.yaml files", at_least=0.1)


# --- files that are small and want to be large ---

LEVELS = "\n".join(f"b{level}: &b{level} [{', '.join([f'*b{level - 1}'] * 10)}]" for level in range(1, 10))
BOMBS = {
    "ten to the ninth": f"b0: &b0 [x, x]\n{LEVELS}\nseed: *b9\n",
    "in itself": "seed: &a [*a]\n",
    "deep": "seed: " + "[" * 100_000,
    "deep in blocks": "seed:\n" + "- " * 50_000 + "x\n",
    "wide": "seed: [" + "1, " * 2_000_000 + "1]",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused(bomb: str, reports: Path, here: Path) -> None:
    for path in (here / "c.yaml", reports / "report.yaml"):
        path.write_text(BOMBS[bomb], encoding="utf-8")
    for args in (
        ("config", "--config", "c.yaml"),
        ("config", "chosen=c.yaml", "scenario=mnist_w0.1_s10"),
        ("sweep", "check", "c.yaml"),
        ("report", "all"),
    ):
        assert judge(*args).code == 2
