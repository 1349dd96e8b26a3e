import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_platform import seeding
from fl_platform.data.partition import Partition
from fl_platform.data.streams import BatchStreams
from fl_platform.errors import UserError

SIZES = (2, 3, 63, 64, 65, 66, 128, 129, 6400)


def partition_of(sizes) -> Partition:
    """Workers of the given sizes over shuffled sample indices."""
    indices = np.random.default_rng(5).permutation(sum(sizes))
    return Partition(indices, np.concatenate(([0], np.cumsum(sizes))))


def reference_batches(samples, worker, batch_size, seed):
    """One worker's stream, batch by batch, for ever."""
    if len(samples) <= batch_size:
        while True:
            yield samples.tolist()
    number = 0
    while True:
        order = samples[seeding.generator(seed, "batches", worker, number).permutation(len(samples))]
        for begin in range(0, len(order), batch_size):
            batch = order[begin : begin + batch_size].tolist()
            if len(batch) > 1 or batch_size == 1:
                yield batch
        number += 1


def batches(plan, place):
    """What a plan gives to one place of the cohort, without padding."""
    return [row[:count].tolist() for row, count in zip(plan.indices[:, place], plan.counts[:, place], strict=True)]


@pytest.mark.parametrize("steps", [1, 5, 130])
def test_streams_equal_the_reference_and_persist_across_rounds(steps):
    partition = partition_of(SIZES)
    streams = BatchStreams(partition, 64, seed=3)
    references = [reference_batches(partition.of(worker), worker, 64, 3) for worker in range(len(SIZES))]
    rng = np.random.default_rng(0)
    for _ in range(6):
        cohort = rng.choice(len(SIZES), 4, replace=False)
        plan = streams.draw(cohort, steps)
        for place, worker in enumerate(cohort):
            assert batches(plan, place) == [next(references[worker]) for _ in range(steps)]


@given(
    st.lists(st.integers(2, 40), min_size=1, max_size=8),
    st.integers(1, 12),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
)
def test_streams_equal_the_reference_for_any_sizes(sizes, batch_size, rounds):
    partition = partition_of(sizes)
    streams = BatchStreams(partition, batch_size, seed=0)
    references = [reference_batches(partition.of(worker), worker, batch_size, 0) for worker in range(len(sizes))]
    for steps in rounds:
        plan = streams.draw(np.arange(len(sizes)), steps)
        for place, reference in enumerate(references):
            assert batches(plan, place) == [next(reference) for _ in range(steps)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (2, [2, 2, 2]),
        (3, [3, 3, 3]),
        (63, [63, 63, 63]),
        (64, [64, 64, 64]),
        (65, [64, 64, 64]),
        (66, [64, 2, 64]),
        (128, [64, 64, 64]),
        (129, [64, 64, 64]),
        (6400, [64, 64, 64]),
    ],
)
def test_batch_sizes(size, expected):
    plan = BatchStreams(partition_of([size]), 64, 0).draw(np.array([0]), 3)
    assert plan.counts[:, 0].tolist() == expected
    assert plan.indices.shape == (3, 1, max(expected))


def test_a_pass_uses_every_sample_once_but_a_single_tail():
    partition = partition_of([6400, 6401])
    plan = BatchStreams(partition, 64, 0).draw(np.array([0, 1]), 100)
    assert sorted(plan.indices[:, 0].ravel().tolist()) == sorted(partition.of(0).tolist())
    assert len(set(plan.indices[:, 1].ravel().tolist())) == 6400


def test_padding_is_zero_and_as_wide_as_the_plan_needs():
    partition = Partition(np.arange(1, 8), np.array([0, 2, 7]))
    plan = BatchStreams(partition, 64, 0).draw(np.array([0, 1]), 1)
    assert plan.indices.tolist() == [[[1, 2, 0, 0, 0], [3, 4, 5, 6, 7]]]
    assert plan.indices.dtype == plan.counts.dtype == np.int64


def test_a_worker_does_not_depend_on_the_rest_of_its_cohort():
    partition = partition_of(SIZES)
    together, alone = BatchStreams(partition, 64, 0), BatchStreams(partition, 64, 0)
    for _ in range(3):
        plan = together.draw(np.array([8, 5, 0]), 5)
        assert batches(plan, 1) == batches(alone.draw(np.array([5]), 5), 0)


def test_an_empty_cohort_draws_nothing():
    plan = BatchStreams(partition_of([5]), 64, 0).draw(np.array([], dtype=np.int64), 5)
    assert plan.counts.shape == (5, 0)
    assert plan.indices.shape[:2] == (5, 0)


def test_resuming_continues_the_streams():
    partition = partition_of(SIZES)
    cohorts = [np.array([0, 4, 8]), np.array([5, 8, 2]), np.array([8, 7, 4])]
    whole = BatchStreams(partition, 64, 1)
    plans = [whole.draw(cohort, 5) for cohort in cohorts]
    first = BatchStreams(partition, 64, 1)
    for cohort in cohorts[:2]:
        first.draw(cohort, 5)
    state = first.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    assert sorted(state["workers"].tolist()) == [0, 2, 4, 5, 8]
    resumed = BatchStreams(partition, 64, 1)
    resumed.load_state_dict(state)
    assert np.array_equal(resumed.draw(cohorts[2], 5).indices, plans[2].indices)


def test_state_of_another_population_is_refused():
    streams = BatchStreams(partition_of([5, 5]), 64, 0)
    with pytest.raises(UserError, match="num_workers=2"):
        streams.load_state_dict({"workers": torch.tensor([2]), "batches": torch.tensor([5])})


@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.integers(1, 12))
def test_full_pass_gives_every_sample_in_order_but_a_single_tail(sizes, batch_size):
    partition = partition_of(sizes)
    streams = BatchStreams(partition, batch_size, 0)
    seen = [[] for _ in sizes]
    for plan in streams.full_pass(np.arange(len(sizes))):
        assert plan.indices.shape[:2] == plan.counts.shape == (1, len(sizes))
        for place, count in enumerate(plan.counts[0]):
            assert count != 1 or batch_size == 1
            assert (plan.indices[0, place, count:] == 0).all()
            seen[place] += plan.indices[0, place, :count].tolist()
    for worker, size in enumerate(sizes):
        is_cut = size > batch_size > 1 and size % batch_size == 1
        assert seen[worker] == partition.of(worker)[: size - is_cut].tolist()


def test_full_pass_leaves_the_streams_where_they_are():
    partition = partition_of(SIZES)
    plain, passed = BatchStreams(partition, 64, 0), BatchStreams(partition, 64, 0)
    list(passed.full_pass(np.array([5, 8])))
    assert np.array_equal(plain.draw(np.array([5, 8]), 5).indices, passed.draw(np.array([5, 8]), 5).indices)
