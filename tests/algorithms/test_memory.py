"""The gradient memory: mem_red, decay, the incrementally kept Gram matrix, checkpoints."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform.algorithms.memory import NARROW, SMALLEST_SCALE, GradientMemory
from fl_platform.algorithms.memory_rules import check_size
from fl_platform.errors import UserError
from fl_platform.qp import project
from fl_platform.runs import metrics

DIMENSION = 12


def make_memory(size: int, **options) -> GradientMemory:
    return GradientMemory(size, **({"dimension": DIMENSION, "decay": 0.5, "dtype": torch.float64} | options))


def play(memory: GradientMemory, cohort: list[int], seed: int) -> torch.Tensor:
    """One round with random updates; the projected vector."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(cohort), memory.rows.shape[1])
    deltas = torch.randn(shape, generator=generator, dtype=torch.float64).to(memory.rows.dtype)
    memory.admit(cohort)
    memory.update(cohort, deltas)
    return memory.project(torch.randn(shape[1], generator=generator, dtype=torch.float64).to(deltas)).vectors


def contents(memory: GradientMemory) -> dict[int, torch.Tensor]:
    rows = memory.rows.double() * memory.scale.unsqueeze(1)
    return {worker: rows[slot] for slot, worker in enumerate(memory.workers)}


def cohorts(num_workers: int, size: int) -> st.SearchStrategy[list[list[int]]]:
    cohort = st.permutations(range(num_workers)).map(lambda order: order[:size])
    return st.lists(cohort, min_size=1, max_size=12)


class Reference:
    """mem_red and the update of D as the paper writes them, with dictionaries."""

    def __init__(self, size: int, decay: float) -> None:
        self.size, self.decay = size, decay
        self.count: dict[int, int] = {}
        self.buffer: list[int] = []  # in order of entry
        self.memory: dict[int, torch.Tensor] = {}

    def round(self, cohort: list[int], deltas: torch.Tensor) -> None:
        entered = set()
        for worker in cohort:
            if worker not in self.buffer:
                if len(self.buffer) == self.size:
                    old = [member for member in self.buffer if member not in cohort]
                    gone = min(old, key=lambda member: self.count[member])  # min takes the first, the earliest entry
                    self.buffer.remove(gone)
                    self.count[gone] = 0
                    del self.memory[gone]
                self.buffer.append(worker)
                entered.add(worker)
            self.count[worker] = self.count.get(worker, 0) + 1
        for worker in self.buffer:
            if worker in entered:
                self.memory[worker] = deltas[cohort.index(worker)].clone()
            elif worker in cohort:
                self.memory[worker] = self.decay * self.memory[worker] + deltas[cohort.index(worker)]
            else:
                self.memory[worker] = self.decay * self.memory[worker]


@given(cohorts(9, 3), st.sampled_from([3, 5, 9]), st.sampled_from([0.0, 0.1, 0.9, 1.0]))
@settings(max_examples=60, deadline=None)
def test_follows_the_paper(rounds, size, decay):
    memory, reference = make_memory(size, decay=decay), Reference(size, decay)
    for number, cohort in enumerate(rounds):
        deltas = torch.randn(3, DIMENSION, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        vector = torch.randn(DIMENSION, generator=torch.Generator().manual_seed(-number - 1), dtype=torch.float64)
        memory.admit(cohort)
        memory.update(cohort, deltas)
        reference.round(cohort, deltas)
        held = contents(memory)
        assert set(held) == set(reference.memory)
        for worker, expected in reference.memory.items():
            torch.testing.assert_close(held[worker], expected, rtol=1e-12, atol=0)
        expected = project(vector, torch.stack([reference.memory[worker] for worker in memory.workers])).vectors
        torch.testing.assert_close(memory.project(vector).vectors, expected, rtol=0, atol=1e-8)


@given(cohorts(9, 4), st.sampled_from([4, 6, 9]), st.sampled_from(["least_frequent", "reservoir", "most_redundant"]))
@settings(max_examples=40, deadline=None)
def test_holds_the_cohort_and_never_more_than_its_size(rounds, size, policy):
    memory = make_memory(size, policy=policy)
    for number, cohort in enumerate(rounds):
        play(memory, cohort, number)
        assert len(set(memory.workers)) == len(memory.workers) <= size
        assert set(cohort) <= set(memory.workers)
        if size == len(cohort):
            assert set(memory.workers) == set(cohort)
    if size == 9:
        assert memory.evictions == 0


def test_a_worker_that_returns_after_eviction_starts_afresh():
    memory = make_memory(2)
    play(memory, [0, 1], 0)
    play(memory, [2, 3], 1)
    memory.admit([0])
    memory.update([0], torch.full((1, DIMENSION), 7.0))
    assert torch.equal(contents(memory)[0], torch.full((DIMENSION,), 7.0, dtype=torch.float64))


def test_decay_applies_before_the_projection_of_the_same_round():
    memory = make_memory(4)
    ones = torch.ones(1, DIMENSION, dtype=torch.float64)
    for cohort in ([0], [1], [0]):
        memory.admit(cohort)
        memory.update(cohort, ones)
    assert torch.equal(contents(memory)[0], torch.full((DIMENSION,), 1.25, dtype=torch.float64))
    assert torch.equal(contents(memory)[1], torch.full((DIMENSION,), 0.5, dtype=torch.float64))


def test_without_decay_factor_only_the_cohort_constrains():
    memory = make_memory(4, decay=0.0)
    first = torch.tensor([[1.0] + [0.0] * (DIMENSION - 1)], dtype=torch.float64)
    second = first.roll(1, dims=1)
    memory.admit([0])
    memory.update([0], first)
    memory.admit([1])
    memory.update([1], second)
    assert not contents(memory)[0].any()
    projected = memory.project(-(first + second).squeeze(0)).vectors
    assert torch.equal(projected, -first.squeeze(0))


def test_a_worker_unseen_for_long_still_constrains():
    memory = make_memory(2, decay=0.1, dtype=torch.float32)
    first = torch.eye(DIMENSION)[:1]
    memory.admit([0])
    memory.update([0], first)
    for _ in range(400):  # 0.1^400 is far below the smallest float64
        memory.admit([1])
        memory.update([1], first.roll(1, dims=1))
    assert float(memory.scale[0]) == SMALLEST_SCALE
    vector = -torch.ones(DIMENSION)
    result = memory.project(vector)
    assert result.vectors[:2].abs().max() < 1e-6
    assert memory.project(vector, drop_threshold=1e-3).vectors[0] == -1  # its length is a negligible share by now
    memory.admit([0])
    memory.update([0], first.roll(2, dims=1))
    assert torch.equal(contents(memory)[0].float(), first.roll(2, dims=1).squeeze(0))


def test_workers_that_do_not_report_hold_nothing_or_decay():
    memory = make_memory(3)
    play(memory, [0, 1], 0)
    before = contents(memory)
    memory.admit([0, 2])
    memory.update([], torch.empty(0, DIMENSION, dtype=torch.float64))
    held = contents(memory)
    assert not held[2].any()
    torch.testing.assert_close(held[0], 0.5 * before[0])
    memory.admit([2])
    memory.update([2], torch.ones(1, DIMENSION))
    assert torch.equal(contents(memory)[2], torch.ones(DIMENSION, dtype=torch.float64))


def test_an_evicted_row_does_not_haunt_a_silent_newcomer():
    memory = make_memory(1)
    memory.admit([0])
    memory.update([0], torch.ones(1, DIMENSION))
    memory.admit([1])
    memory.update([], torch.empty(0, DIMENSION))
    vector = -torch.ones(DIMENSION, dtype=torch.float64)
    assert torch.equal(memory.project(vector).vectors, vector)


@pytest.mark.parametrize("segments", [None, [(0, 40), (40, 41), (41, NARROW + 300)]])
def test_the_gram_matrix_stays_right_for_hundreds_of_rounds(segments):
    dimension = NARROW + 300
    memory = GradientMemory(12, dimension, decay=0.7, segments=segments)
    rng, common = np.random.default_rng(0), torch.randn(dimension, generator=torch.Generator().manual_seed(0))
    for number in range(250):
        cohort = rng.choice(20, size=3, replace=False).tolist()
        memory.admit(cohort)
        memory.update(cohort, common + torch.randn(3, dimension, generator=torch.Generator().manual_seed(number)))
        memory.project(common)
    for index, (start, stop) in enumerate(memory.segments):
        rows = memory.rows[:, start:stop].double()
        length = rows.norm(dim=1)
        error = (memory.gram[index] - rows @ rows.mT).abs() / torch.outer(length, length)
        assert float(error.max()) <= 1e-6


@given(cohorts(6, 2), st.sampled_from(["least_frequent", "reservoir"]), st.integers(0, 12))
@settings(max_examples=30, deadline=None)
def test_a_checkpoint_continues_with_equal_bits(rounds, policy, cut):
    straight = make_memory(3, policy=policy, dtype=torch.float32)
    resumed = make_memory(3, policy=policy, dtype=torch.float32)
    for number, cohort in enumerate(rounds):
        if number == cut:
            fresh = make_memory(3, policy=policy, dtype=torch.float32)
            fresh.load_state_dict(copy.deepcopy(resumed.state_dict()))
            resumed = fresh
        assert torch.equal(play(straight, cohort, number), play(resumed, cohort, number))
    assert straight.statistics() == resumed.statistics()
    first, second = straight.state_dict(), resumed.state_dict()
    assert all(torch.equal(torch.as_tensor(first[name]), torch.as_tensor(second[name])) for name in first)


def test_a_checkpoint_between_update_and_projection_continues_with_equal_bits():
    straight = make_memory(4)
    play(straight, [0, 1], 0)
    straight.admit([1, 2])
    straight.update([1, 2], torch.randn(2, DIMENSION, generator=torch.Generator().manual_seed(5)))
    resumed = make_memory(4)
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    vector = torch.linspace(-1, 1, DIMENSION, dtype=torch.float64)
    assert torch.equal(straight.project(vector).vectors, resumed.project(vector).vectors)


def test_a_checkpoint_of_another_shape_is_refused():
    with pytest.raises(UserError, match=r"\(3, 12\).*\(4, 12\).*algorithm.memory_size"):
        make_memory(4).load_state_dict(make_memory(3).state_dict())


def test_per_tensor_projection_meets_the_global_constraints():
    segments = [(0, 5), (5, 6), (6, DIMENSION)]
    whole, parts = make_memory(4), make_memory(4, segments=segments)
    vector = torch.linspace(-1, 1, DIMENSION, dtype=torch.float64)
    for number, cohort in enumerate([[0, 1], [2, 3], [1, 2]]):
        play(whole, cohort, number)
        play(parts, cohort, number)
    anchors = torch.stack(list(contents(parts).values()))
    result = parts.project(vector)
    torch.testing.assert_close(result.vectors, project(vector, anchors, segments=segments).vectors)
    assert float((anchors @ result.vectors).min()) >= -1e-9
    torch.testing.assert_close(whole.project(vector).vectors, project(vector, anchors).vectors)
    assert result.active.shape == (3,)


def test_columns_split_over_ranks_give_the_same_projection():
    """Two memories of half the coordinates each, their products added up, act as one."""
    whole = make_memory(4)
    halves = [make_memory(4, dimension=DIMENSION // 2) for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    for cohort in ([0, 1], [2, 3], [0, 2]):
        deltas = torch.randn(2, DIMENSION, generator=generator, dtype=torch.float64)
        for memory, part in zip([whole, *halves], [deltas, *deltas.chunk(2, dim=1)], strict=True):
            memory.admit(cohort)
            memory.update(cohort, part)
    vector = torch.randn(DIMENSION, generator=generator, dtype=torch.float64)
    pieces = vector.chunk(2)
    stale = torch.arange(4)
    sums = sum(half._contributions(stale, piece) for half, piece in zip(halves, pieces, strict=True))
    for half in halves:
        half.reduce = lambda contribution: sums
    projected = torch.cat([half.project(piece).vectors for half, piece in zip(halves, pieces, strict=True)])
    torch.testing.assert_close(projected, whole.project(vector).vectors)


def test_memory_may_live_elsewhere():
    """Other devices and precisions than the vectors': what comes back is on the vector's."""
    memory = make_memory(2, dtype=torch.float32)
    memory.admit([0])
    memory.update([0], torch.eye(DIMENSION, dtype=torch.float64)[:1])
    vector = -torch.ones(DIMENSION, dtype=torch.float64)
    projected = memory.project(vector).vectors
    assert projected.dtype == torch.float64
    assert projected[0] == 0
    assert torch.equal(projected[1:], vector[1:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device to offload from")
def test_memory_on_the_host_serves_vectors_on_the_device():
    memory = make_memory(2, dtype=torch.float32)
    memory.admit([0])
    memory.update([0], torch.eye(DIMENSION, device="cuda")[:1])
    assert memory.project(-torch.ones(DIMENSION, device="cuda")).vectors.device.type == "cuda"


def test_an_empty_memory_leaves_the_vector_alone():
    vector = torch.linspace(-1, 1, DIMENSION)
    assert torch.equal(make_memory(3).project(vector).vectors, vector)


def test_updates_of_round_off_are_directions_like_any_other():
    """The gradient of a bias before BatchNorm is round-off, now and then near the smallest float32: no overflow."""
    memory = make_memory(2, dtype=torch.float32)
    memory.admit([0, 1])
    deltas = torch.randn(2, DIMENSION, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([[1e-41], [1.0]])
    memory.update([0, 1], deltas * lengths)
    vector = -deltas.sum(0)
    stored = memory.rows.double()  # with their few bits: what is projected onto
    expected = project(vector.double(), stored).vectors
    torch.testing.assert_close(memory.project(vector).vectors.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_numbers_are_not_hidden(bad):
    memory = make_memory(2)
    memory.admit([0])
    memory.update([0], torch.full((1, DIMENSION), bad))
    assert not memory.project(torch.ones(DIMENSION, dtype=torch.float64)).vectors.isfinite().all()


def test_statistics_count_what_happened():
    memory = make_memory(2)
    for number, cohort in enumerate([[0], [1], [1], [2]]):  # 2 takes the place of 0, sampled once
        play(memory, cohort, number)
    assert memory.statistics() == {
        metrics.MEMORY_SLOTS: 2.0,
        metrics.MEMORY_EVICTIONS: 1.0,
        metrics.MEMORY_HITS: 1.0,
        metrics.MEMORY_MEAN_AGE: 0.5,
        metrics.MEMORY_MAX_AGE: 1.0,
    }


def test_sizes_are_checked():
    for good in (0, 10, 50, 100):
        check_size(good, 10, 100)
    for bad in (-1, 9, 101):
        with pytest.raises(UserError, match=f"algorithm.memory_size={bad} .*cohort_size=10 and num_workers=100"):
            check_size(bad, 10, 100)


def test_a_cohort_that_cannot_be_held_is_refused():
    for cohort in ([0, 1, 2], [1, 1]):
        with pytest.raises(UserError, match=r"algorithm.memory_size=2"):
            make_memory(2).admit(cohort)
