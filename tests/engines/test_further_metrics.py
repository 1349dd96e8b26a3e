"""Figures beyond accuracy: those of other libraries, logged, and as targets."""

import json

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torchmetrics.functional.text import perplexity

from fl_platform.config.targets import FURTHER_METRICS, parse_target
from fl_platform.engines.further_metrics import BINS, further_metrics
from fl_platform.federation.scoreboard import Scoreboard
from fl_platform.reporting.tables import target_table
from fl_platform.runs import metrics
from fl_platform.runs.frames import to_frames
from fl_platform.runs.record import merge
from tests.federations import make_config, train
from tests.synthetic_logs import make_log


@pytest.fixture(scope="module")
def evaluated():
    """Logits and labels of five classes, of which one never occurs and one is never predicted."""
    rng = np.random.default_rng(0)
    labels = rng.choice(5, 300, p=[0.5, 0.2, 0.2, 0.1, 0.0])
    logits = rng.normal(size=(300, 5)) + 1.5 * np.eye(5)[labels]
    logits[:, 3] -= 50
    correct = np.array([((logits.argmax(1) == labels) & (labels == k)).sum() for k in range(5)])
    total = np.bincount(labels, minlength=5)
    tensors = torch.from_numpy(logits), torch.from_numpy(labels)
    loss = float(torch.nn.functional.cross_entropy(*tensors))
    return *tensors, further_metrics(FURTHER_METRICS, *tensors, loss, correct, total)


def test_f1_and_balanced_accuracy_are_those_of_scikit_learn(evaluated):
    logits, labels, found = evaluated
    predicted = logits.argmax(1).numpy()
    present = sorted({*labels.tolist(), *predicted.tolist()})
    f1 = sklearn_metrics.f1_score(labels, predicted, labels=present, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(f1, abs=1e-6)
    recalls = [(predicted[labels.numpy() == k] == k).mean() for k in sorted(set(labels.tolist()))]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls), abs=1e-12)


def test_perplexity_and_calibration_error(evaluated):
    """Perplexity is torchmetrics' for text; the error is the mean gap of confidence and accuracy in equal bins."""
    logits, labels, found = evaluated
    assert found["perplexity"] == pytest.approx(float(perplexity(logits[None], labels[None])), rel=1e-6)
    confidence, predicted = logits.softmax(1).max(1)
    bins = torch.clamp((confidence * BINS).ceil().long() - 1, 0, BINS - 1)
    gaps = [
        (bins == k).double().mean()
        * abs(confidence[bins == k].mean() - (predicted == labels)[bins == k].double().mean())
        for k in bins.unique()
    ]
    assert found["calibration_error"] == pytest.approx(float(sum(gaps)), abs=1e-6)


def test_a_run_logs_them_and_knows_when_it_reached_a_bound():
    done = train(make_config("evaluation.metrics=[macro_f1]", "evaluation.targets=[0.01, perplexity<=100, loss<=1e-9]"))
    row, summary = done.module.history[-1], done.module.scoreboard.summary()
    assert 0 < row[metrics.MACRO_F1] <= 1
    assert row[metrics.PERPLEXITY] == pytest.approx(np.exp(row[metrics.TEST_LOSS]))  # named by a target
    assert summary["to_target/perplexity<=100/rounds"] == summary["to_target/0.01/rounds"] == 1
    assert "to_target/loss<=1e-09/rounds" not in summary
    assert summary["test/final_macro_f1"] == row[metrics.MACRO_F1]
    assert metrics.CALIBRATION_ERROR not in row
    again = Scoreboard.of_rows(done.module.scoreboard.targets, done.module.history)
    assert again == done.module.scoreboard
    assert Scoreboard(**json.loads(json.dumps(vars(again)))) == again


def test_plain_runs_log_nothing_more():
    row = train(make_config("num_rounds=1")).module.history[-1]
    assert not {metrics.tested(name) for name in FURTHER_METRICS} & row.keys()


def test_targets_are_reached_from_their_better_side():
    assert parse_target(0.9).is_reached(0.9)
    assert not parse_target(0.9).is_reached(float("nan"))
    assert parse_target("perplexity<=4.5").is_reached(4.4)
    assert not parse_target(" perplexity <= 4.50 ").is_reached(4.6)
    assert (parse_target("1").text, parse_target("macro_f1>=0.80").text) == ("1", "macro_f1>=0.8")


def test_tables_read_rounds_off_the_curve_of_the_metric_that_a_target_names():
    columns = {metrics.PERPLEXITY: np.array([7.0, 5.0, 4.0])}
    configured = {"evaluation": {"targets": ["perplexity<=5"]}}
    logs = [
        make_log("fedavg", seed, accuracy=[0.1, 0.2, 0.3], data="letters", columns=columns, **configured)
        for seed in (0, 1)
    ]
    table = target_table(to_frames(merge(logs)), seeds=2)
    assert table.title == "Rounds to reach the target"
    assert table.header[-1] == (("perplexity<=5", 1),)
    assert [row.cells[0].text for block in table.blocks for row in block] == ["2"]
    other = target_table(to_frames(merge(logs)), seeds=2, target="perplexity<=4")
    assert [row.cells[0].text for block in other.blocks for row in block] == ["3"]
