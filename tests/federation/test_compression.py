"""Compressed uploads: closed forms, bytes, error feedback, and the same results however they are computed."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.config.groups import CompressionConfig
from fl_platform.errors import UserError
from fl_platform.federation.compression import encoded_bytes, largest_entries, num_kept, quantised
from fl_platform.federation.uploads import travelling
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from fl_platform.seeding import stream_keys
from tests.algorithms.trajectories import run, watch
from tests.federations import make_config, train

TOPK = ("compression.name=topk", "compression.fraction=0.1")
QUANTISE = ("compression.name=quantise", "compression.bits=4")


def keys(count):
    return torch.from_numpy(stream_keys(1, np.arange(count), 0, "test")[0])


def test_the_largest_entries_are_kept():
    row = torch.tensor([[0.5, -3.0, 0.0, 2.0, -0.1], [9.0, 1.0, -2.0, 3.0, 4.0]])
    kept = torch.tensor([[0.0, -3.0, 0.0, 2.0, 0.0], [9.0, 0.0, 0.0, 0.0, 4.0]])
    assert torch.equal(largest_entries(row, 2), kept)
    assert largest_entries(row, 5) is row


def test_quantised_entries_are_neighbouring_levels_and_right_on_average():
    row = torch.linspace(-1, 1, 41, dtype=torch.float64)
    found = quantised(row.repeat(20_000, 1), 3, keys(20_000))  # levels -3..3
    steps = found * 3
    assert torch.allclose(steps, steps.round(), rtol=0, atol=1e-12)
    assert (steps - 3 * row).abs().max() < 1
    assert (found.mean(0) - row).abs().max() < 5 / 3 / 2 / math.sqrt(20_000)
    assert torch.equal(found[:, 0], -torch.ones(20_000, dtype=torch.float64))


def test_zeros_and_two_bits_are_quantised_too():
    assert torch.equal(quantised(torch.zeros(2, 5), 2, keys(2)), torch.zeros(2, 5))
    assert set(quantised(torch.tensor([[0.3, -0.5, 2.0]]), 2, keys(1)).abs().unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize(
    ("compression", "expected"),
    [
        (CompressionConfig("none"), 4000),
        (CompressionConfig("topk", fraction=0.01), 10 * 4 + math.ceil(10 * 10 / 8)),  # packed indices of 10 bits
        (CompressionConfig("topk", fraction=0.5), 500 * 4 + 125),  # a map of 1,000 bits is shorter than 5,000
        (CompressionConfig("topk", fraction=0.99), 4000),  # the vector itself
        (CompressionConfig("topk", fraction=1.0), 4000),
        (CompressionConfig("quantise", bits=8), 1004),
        (CompressionConfig("quantise", bits=3), 375 + 4),
    ],
)
def test_bytes_of_a_thousand_numbers(compression, expected):
    assert encoded_bytes(1000, 4, compression) == expected


@pytest.mark.parametrize(("name", "vectors"), [("fedavg", 1), ("scaffold", 2), ("mifa", 1)])
def test_a_run_counts_compressed_uploads(name, vectors):
    """239 float64 parameters down, 24 of them and 24 places of 8 bits up; 28 statistics both ways."""
    done = run(name, *TOPK, "num_rounds=1")
    assert done.logged(metrics.TOTAL_BYTES) == [3 * (vectors * 239 * 8 + 28 * 8) + 3 * (vectors * 24 * 9 + 28 * 8)]


def test_what_travels_is_the_update_unless_something_stands_in_for_it():
    sent = {name: travelling(base.get(name)()) for name in ("fedavg", "scaffold", "mifa", "mimelite")}
    assert sent == {
        "fedavg": ["update"],
        "scaffold": ["update", "control_change"],
        "mifa": ["update_change"],
        "mimelite": ["update", "gradient"],
    }


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "mifa", "feddyn", "gradma"])
@pytest.mark.parametrize("feedback", ["true", "false"])
def test_all_entries_are_no_compression(name, feedback):
    words = ("compression.name=topk", "compression.fraction=1", f"compression.error_feedback={feedback}")
    assert torch.equal(run(name, *words).rounds, run(name).rounds)


def test_what_was_sent_and_what_is_remembered_are_what_was_to_be_sent():
    """One round with everybody: sum of q_i = sum of d_i - e_i, and later uploads bring the e_i."""
    done = watch("fedavg", *TOPK, "cohort_size=6", "num_rounds=1")
    plain = watch("fedavg", "cohort_size=6", "num_rounds=1")
    [sent], [whole] = done.algorithm.server_steps, plain.algorithm.server_steps
    order = torch.from_numpy(sent.updates.workers)
    errors = done.table("compression_error.update")
    assert torch.allclose(sent.updates.delta + errors[order], whole.updates.delta, rtol=0, atol=1e-14)
    assert sent.updates.delta.count_nonzero(dim=1).tolist() == [24] * 6
    assert (sent.updates.delta * errors[order] == 0).all()


def test_error_feedback_is_the_default_of_topk_only():
    assert "compression_error.update" in run("fedavg", *TOPK, "num_rounds=1").module.states.state_dict()
    assert make_config(*TOPK).compression.error_feedback is True
    assert not run("fedavg", *QUANTISE, "num_rounds=1").module.states.state_dict()
    words = ("compression.error_feedback=true", "num_rounds=1")
    assert "compression_error.update" in run("fedavg", *QUANTISE, *words).module.states.state_dict()


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "mifam"])
@pytest.mark.parametrize("words", [TOPK, QUANTISE], ids=["topk", "quantise"])
def test_engines_agree_and_resumed_runs_have_equal_bits(name, words, tmp_path):
    config = make_config(f"algorithm.name={name}", *words, "num_rounds=4", "engine=loop")
    whole = train(config)
    stacked = train(dataclasses.replace(config, engine="stacked"))
    assert torch.allclose(whole.params, stacked.params, rtol=0, atol=1e-10)
    train(dataclasses.replace(config, num_rounds=2), checkpoints=tmp_path)
    resumed = train(config, resume=sorted_checkpoints(tmp_path)[0][1])
    assert torch.equal(whole.params, resumed.params)
    assert whole.figures() == resumed.figures()
    assert all(0 < row[metrics.COMPRESSION_ERROR] < 1 for row in whole.figures())


def test_a_rejected_worker_keeps_its_error():
    words = ("faults.kind=nan", "faults.probability=1", "faults.reject_nonfinite=true")
    assert not run("fedavg", *TOPK, *words).module.states.state_dict()


def test_bad_values_are_refused():
    with pytest.raises(UserError, match=r"compression.fraction=0.0 is not allowed; it must be > 0 and <= 1"):
        make_config("compression.name=topk", "compression.fraction=0")
    with pytest.raises(UserError, match=r"compression.name=top is not allowed; .* did you mean 'topk'"):
        make_config("compression.name=top")


def test_a_fraction_is_the_decimal_that_was_written():
    """0.07 * 100 is 7.000000000000001 in floating point."""
    assert [num_kept(100, 0.07), num_kept(100, 0.071), num_kept(3, 1e-9), num_kept(5, 1.0)] == [7, 8, 1, 5]


@pytest.mark.parametrize("compression", [("compression.name=topk", "compression.fraction=0.02"), QUANTISE])
def test_what_stays_with_a_worker_takes_no_place_in_a_short_upload(compression):
    """FedPer keeps the last layer's 21 of 239 numbers: ceil(0.02 * 218) = 5 others are sent, the largest of them."""
    done = watch("fedper", *compression, "num_rounds=2", "compression.error_feedback=false")
    exact = watch("fedper", "num_rounds=1")
    private = done.algorithm.private
    assert int(private.sum()) == 21
    for seen in done.algorithm.server_steps:
        assert not seen.updates.delta[:, private].any()
    sent, wanted = done.algorithm.server_steps[0].updates.delta, exact.algorithm.server_steps[0].updates.delta
    assert not wanted[:, private].any()
    if compression is not QUANTISE:
        assert sent.ne(0).sum(1).tolist() == [5, 5, 5]
        assert torch.equal(sent, largest_entries(wanted, 5))
    else:
        assert torch.equal(sent.abs().amax(1), wanted.abs().amax(1))


def test_a_model_that_is_private_as_a_whole_sends_nothing():
    words = ("algorithm.personal_layers=3", "buffers=server", "num_rounds=1")
    done = run("fedper", *TOPK, *words)
    assert done.logged(metrics.TOTAL_BYTES) == [0]
    assert torch.equal(done.rounds[0], done.rounds[1])
