"""One round after another through the real Trainer: what is evaluated, logged, averaged, kept, and when it stops."""

import hashlib
import math

import lightning as L
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fl_platform.algorithms.base import Start
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.federation.build import build, make_algorithm
from tests.federations import SIZES, make_config, synthetic_dataset, train


class Watch(L.Callback):
    """Copies what a test asks for after every round."""

    def __init__(self, look):
        self.look, self.seen = look, []

    def on_train_start(self, trainer, pl_module):
        self.seen.append(self.look(pl_module))

    def on_train_epoch_end(self, trainer, pl_module):
        self.seen.append(self.look(pl_module))


def params_of(module):
    return module.global_params.clone()


# --- evaluation ---


@pytest.mark.parametrize(
    ("every", "rounds", "expected"),
    [(5, 13, [1, 6, 11, 13]), (5, 11, [1, 6, 11]), (1, 3, [1, 2, 3]), (100, 4, [1, 4]), (2, 1, [1])],
)
def test_evaluated_rounds_are_the_first_every_few_and_the_last(every, rounds, expected):
    history = train(make_config(f"evaluation.every={every}", f"num_rounds={rounds}", "local_steps=1")).module.history
    evaluated = [row["round"] for row in history if "test/accuracy" in row]
    assert evaluated == expected
    assert [row["round"] for row in history] == list(range(1, rounds + 1))
    for row in history:
        figures = {
            "test/accuracy",
            "test/loss",
            "test/top_accuracy",
            "test/forgetting",
            "test/class_accuracy",
        } & row.keys()
        assert len(figures) == (5 if row["round"] in expected else 0)


def test_forgetting_and_top_accuracy_follow_from_the_class_accuracies():
    history = train(make_config("num_rounds=8", "local_lr=0.5")).module.history
    per_class = np.array([row["test/class_accuracy"] for row in history])
    best = np.maximum.accumulate(per_class)
    assert [row["test/forgetting"] for row in history] == pytest.approx((best - per_class).mean(1).tolist())
    assert max(row["test/forgetting"] for row in history) > 0
    accuracies = [row["test/accuracy"] for row in history]
    assert [row["test/top_accuracy"] for row in history] == np.maximum.accumulate(accuracies).tolist()


def test_accuracy_and_loss_are_those_of_the_exported_model():
    done = train(make_config())
    module = done.module
    exported = module.network.export(module.global_params, module.global_buffers).eval()
    images, labels = module.test_samples.whole(), module.test_samples.all_labels
    with torch.no_grad():
        logits = exported(images)
    last = module.history[-1]
    hits = (logits.argmax(1) == labels).double()
    assert last["test/accuracy"] == pytest.approx(float(hits.mean()))
    assert last["test/loss"] == pytest.approx(float(F.cross_entropy(logits, labels)))
    assert last["test/class_accuracy"] == pytest.approx([float(hits[labels == label].mean()) for label in range(3)])


def test_validation_fraction_evaluates_held_out_training_data_instead_of_the_test_set():
    args = ["num_workers=10", "cohort_size=2", "num_rounds=1"]
    plain, held = (
        build(config, make_algorithm(config))
        for config in (resolve(compose([*args, *more])).config for more in ([], ["data.validation_fraction=0.2"]))
    )
    (train_set, test_set), (kept, validation) = plain._sets, held._sets
    assert (len(kept), len(validation)) == (len(train_set) - round(0.2 * len(train_set)), round(0.2 * len(train_set)))
    assert sum(held.sizes) == len(kept)
    everything = sorted(image.numpy().tobytes() for image in train_set.features)
    assert sorted(image.numpy().tobytes() for part in (kept, validation) for image in part.features) == everything
    assert len(test_set) != len(validation)


# --- the figures of a round ---


def test_every_round_has_its_figures():
    history = train(make_config("num_rounds=4")).module.history
    always = {
        "round",
        "cohort/size",
        "cohort/workers",
        "train/loss",
        "update/norm",
        "time/round_seconds",
        "time/total_seconds",
        "communication/total_bytes",
    }
    for row in history:
        assert always <= row.keys()
        assert row["cohort/size"] == len(row["cohort/workers"]) == 3
    seconds = [row["time/round_seconds"] for row in history]
    assert [row["time/total_seconds"] for row in history] == pytest.approx(np.cumsum(seconds).tolist())


def test_the_update_norm_is_the_step_before_the_server_rate():
    watch = Watch(params_of)
    done = train(make_config("server_lr=0.5"), callbacks=(watch,))
    steps = [float((before - after).norm()) for before, after in zip(watch.seen, watch.seen[1:], strict=False)]
    assert [0.5 * row["update/norm"] for row in done.module.history] == pytest.approx(steps)


@pytest.mark.parametrize(("algorithm", "vectors"), [("fedavg", 2), ("scaffold", 4), ("mimelite", 4), ("gradma", 2)])
@pytest.mark.parametrize("buffers", ["average", "server", "local"])
def test_bytes_are_models_down_and_updates_up(algorithm, vectors, buffers):
    module = train(
        make_config(f"algorithm.name={algorithm}", f"buffers={buffers}", "num_rounds=2", "local_steps=1")
    ).module
    statistics = 2 * len(module.global_buffers) if buffers == "average" else 0
    each_round = 3 * 8 * (vectors * len(module.global_params) + statistics)
    assert [row["communication/total_bytes"] for row in module.history] == [each_round, 2 * each_round]


def test_the_fingerprint_is_the_sha256_of_parameters_and_buffers():
    module = train(make_config("num_rounds=1")).module
    content = module.global_params.numpy().tobytes() + module.global_buffers.numpy().tobytes()
    assert module.fingerprint() == hashlib.sha256(content).hexdigest()
    before = module.fingerprint()
    module.global_buffers[0] += 1
    assert module.fingerprint() != before


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_precision_is_that_of_the_parameters(precision):
    module = train(make_config(f"precision={precision}", "num_rounds=1")).module
    assert module.global_params.dtype == module.global_buffers.dtype == getattr(torch, precision)


def test_running_leaves_the_global_generators_alone():
    before = torch.get_rng_state()
    train(make_config("model.name=tests.models.own_modules.Plain", "num_rounds=2"), sizes=SIZES, dataset=digits_like())
    assert torch.equal(before, torch.get_rng_state())


def digits_like():
    return synthetic_dataset((1, 8, 8), 10)


def test_a_users_module_gives_equal_results_in_both_engines():
    """With BatchNorm, channel dropout and lazy layers, on padded batches."""
    args = ("model.name=tests.models.own_modules.Plain", "num_rounds=2", "algorithm.name=moon")
    loop, stacked = (
        train(make_config(*args, f"engine={engine}"), dataset=digits_like()) for engine in ("loop", "stacked")
    )
    assert torch.allclose(loop.params, stacked.params, rtol=0, atol=1e-10)
    assert torch.allclose(loop.module.global_buffers, stacked.module.global_buffers, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_chunks_of_a_cohort_leave_the_model_unchanged(engine):
    whole, chunked = (train(make_config(f"engine={engine}", *extra)) for extra in ((), ("cohort_chunk=2",)))
    assert torch.allclose(whole.params, chunked.params, rtol=0, atol=1e-12)


# --- running statistics ---


def statistics_after(mode, rounds):
    """Global statistics and those each worker keeps, for workers whose batch statistics never change.

    Parameters hardly move and each batch is a worker's whole data, so after k steps s_k = m + 0.9^k (s_0 - m).
    """
    config = make_config(f"buffers={mode}", f"num_rounds={rounds}", "cohort_size=6", "batch_size=64", "local_lr=1e-30")
    module = train(config).module
    order = np.arange(len(SIZES))
    given = {Start.GLOBAL_PARAMS: module.global_params, Start.GLOBAL_BUFFERS: module.global_buffers}
    kept = module.states.gather(order, given).get("running_statistics")
    return module.global_buffers, kept, module.network.initial_buffers.double()


def test_buffers_average_and_local_follow_their_recursions():
    decay = 0.9**3  # three local steps with momentum 0.1
    first_global, first_kept, start = statistics_after("local", 1)
    own = (first_kept - decay * start) / (1 - decay)  # m_i of each worker
    assert not torch.allclose(own[0], own[1])
    assert torch.allclose(first_global, first_kept.mean(0))

    third_global, third_kept, _ = statistics_after("local", 3)
    expected = own + decay**3 * (start - own)  # each worker goes on from its own
    assert torch.allclose(third_kept, expected, rtol=1e-9, atol=1e-9)
    assert torch.allclose(third_global, expected.mean(0), rtol=1e-9, atol=1e-9)

    averaged, nothing, _ = statistics_after("average", 3)
    assert nothing is None
    expected_global = start
    for _ in range(3):  # each round starts from the average
        expected_global = (own + decay * (expected_global - own)).mean(0)
    assert torch.allclose(averaged, expected_global, rtol=1e-9, atol=1e-9)


def test_buffers_server_never_change():
    buffers, nothing, start = statistics_after("server", 2)
    assert torch.equal(buffers, start)
    assert nothing is None


def test_where_statistics_live_does_not_change_the_parameters():
    """Training normalises by the batch; only evaluation reads running statistics."""
    params = [train(make_config(f"buffers={mode}")).params for mode in ("average", "server", "local")]
    assert torch.equal(params[0], params[1])
    assert torch.equal(params[0], params[2])


def test_without_batch_norm_there_are_no_buffers():
    for norm in ("group", "none"):
        assert len(train(make_config(f"model.norm={norm}", "num_rounds=1")).module.global_buffers) == 0


# --- who reports ---


@pytest.mark.parametrize(
    "args",
    [
        ("availability.name=bernoulli", "availability.failure_probability=1"),
        ("availability.name=markov", "availability.leave_probability=1", "availability.return_probability=0"),
    ],
)
@pytest.mark.parametrize("algorithm", ["fedavg", "gradma", "mifam"])
def test_a_round_in_which_nobody_reports_changes_nothing_and_is_logged(args, algorithm):
    watch = Watch(params_of)
    module = train(make_config(*args, f"algorithm.name={algorithm}", "num_rounds=2"), callbacks=(watch,)).module
    assert torch.equal(watch.seen[0], watch.seen[-1])
    for row in module.history:
        assert (row["cohort/size"], row["cohort/workers"]) == (0, [])
        assert "train/loss" not in row
        assert row["test/accuracy"] >= 0
    sampled = 3 if "bernoulli" in args[0] else 0  # models went down to those sampled
    per_worker = 8 * (len(module.global_params) + len(module.global_buffers))
    assert module.history[-1]["communication/total_bytes"] == 2 * sampled * per_worker


def test_failed_workers_keep_their_state_and_their_streams():
    def look(module):
        streams, states = module.streams.state_dict(), module.states.state_dict()
        drawn = dict(zip(streams["workers"].tolist(), streams["batches"].tolist(), strict=True))
        table = next(iter(states.values()), {"workers": torch.tensor([]), "rows": []})
        kept = dict(zip(table["workers"].tolist(), (row.clone() for row in table["rows"]), strict=True))
        return drawn, kept

    args = (
        "algorithm.name=scaffold",
        "availability.name=bernoulli",
        "availability.failure_probability=0.5",
        "num_rounds=12",
    )
    watch = Watch(look)
    module = train(make_config(*args, "cohort_size=4"), callbacks=(watch,)).module
    failures = 0
    for row, before, after in zip(module.history, watch.seen, watch.seen[1:], strict=False):
        reported = set(row["cohort/workers"])
        failures += 4 - len(reported)
        for worker in range(len(SIZES)):
            drawn = after[0].get(worker, 0) - before[0].get(worker, 0)
            assert drawn == (3 if worker in reported else 0)
            if worker not in reported and worker in before[1]:
                assert torch.equal(before[1][worker], after[1][worker])
            if worker in reported:
                assert worker in after[1]
    assert failures > 5


# --- divergence ---


def test_a_run_that_diverges_stops_says_when_and_applies_nothing_that_is_not_finite():
    watch = Watch(params_of)
    done = train(
        make_config("local_lr=1e6", "model.norm=none", "num_rounds=50", "precision=float32"), callbacks=(watch,)
    )
    scoreboard = done.module.scoreboard
    assert scoreboard.diverged_round == len(done.module.history) < 50
    last = done.module.history[-1]
    assert "test/accuracy" not in last
    assert not math.isfinite(last["update/norm"]) or not math.isfinite(last.get("test/loss", 0.0))
    finite = [bool(torch.isfinite(params).all()) for params in watch.seen]
    assert all(finite[:-1])
    for row in done.module.history[:-1]:
        assert math.isfinite(row["test/loss"])


def test_parameters_that_give_no_finite_loss_count_as_diverged():
    """Finite, but so large that the logits are not."""
    config = make_config("model.norm=none", "precision=float32", "server_lr=1e37", "num_rounds=5")
    module = train(config).module
    assert module.scoreboard.diverged_round == len(module.history) == 1
    assert "test/accuracy" not in module.history[0]
    assert not math.isfinite(module.history[0].get("test/loss", math.nan))
