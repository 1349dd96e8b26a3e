"""Who makes room: each policy on cases small enough to decide by hand."""

import numpy as np
import pytest
import torch

from fl_platform.algorithms.memory import GradientMemory
from fl_platform.algorithms.policies import Integers, Policy, Slots
from fl_platform.config.registry import POLICIES
from fl_platform.errors import UserError


def play(policy: str, rounds: list[list[int]], deltas: dict[int, list[float]] | None = None, seed: int = 0) -> set[int]:
    """Workers in a memory of three slots after some rounds."""
    memory = GradientMemory(3, 3, decay=0.5, dtype=torch.float64, policy=policy, seed=seed)
    for cohort in rounds:
        memory.admit(cohort)
        memory.update(cohort, torch.tensor([(deltas or {}).get(worker, [1.0, 1.0, 1.0]) for worker in cohort]))
    return set(memory.workers)


def test_least_frequent_evicts_the_lowest_count_then_the_earliest_entry():
    assert play("least_frequent", [[0], [1], [2], [0], [2], [3]]) == {0, 2, 3}
    assert play("least_frequent", [[2], [1], [0], [3]]) == {0, 1, 3}


def test_least_frequent_forgets_the_count_of_the_evicted():
    history = [[0, 1, 2], [0, 1, 2], [3], [3], [3]]  # all had 2; 0, the earliest, made room for 3
    assert play("least_frequent", history) == {1, 2, 3}
    assert play("least_frequent", [*history, [0]]) == {0, 2, 3}
    assert play("least_frequent", [*history, [0], [4]]) == {2, 3, 4}  # 0 is back with a count of 1, not 3


def test_least_recent_evicts_the_longest_unseen():
    assert play("least_recent", [[0], [1], [2], [0], [3]]) == {0, 2, 3}


def test_fifo_evicts_the_first_to_enter_however_often_it_came():
    assert play("fifo", [[0], [1], [2], [0], [0], [3]]) == {1, 2, 3}


def test_reservoir_is_fixed_by_its_seed_and_reaches_every_slot():
    history = [[0], [1], [2], [3]]
    assert play("reservoir", history, seed=7) == play("reservoir", history, seed=7)
    survivors = {frozenset(play("reservoir", history, seed=seed)) for seed in range(40)}
    assert survivors == {frozenset({1, 2, 3}), frozenset({0, 2, 3}), frozenset({0, 1, 3})}


def test_most_redundant_evicts_what_the_others_explain():
    deltas = {0: [1.0, 0.0, 0.0], 1: [0.0, 1.0, 0.0], 2: [1.0, 0.1, 0.0], 3: [0.0, 0.0, 1.0]}
    # All three lie in one plane, so each is explained by the other two: the earliest goes.
    assert play("most_redundant", [[0], [1], [2], [3]], deltas) == {1, 2, 3}
    deltas[2] = [1.0, 0.0, 0.1]  # 1 is now orthogonal to the rest; 0 and 2 are nearly parallel
    assert play("most_redundant", [[1], [0], [2], [3]], deltas) == {1, 2, 3}


def test_most_redundant_prefers_slots_that_hold_nothing():
    deltas = {0: [1.0, 0.0, 0.0], 1: [0.0, 0.0, 0.0], 2: [1.0, 0.01, 0.0]}
    assert play("most_redundant", [[0], [1], [2], [3]], deltas) == {0, 2, 3}


@pytest.mark.parametrize("policy", POLICIES.names())
def test_no_policy_evicts_a_member_of_the_cohort(policy):
    memory = GradientMemory(4, 3, decay=0.5, policy=policy, seed=1)
    rng = np.random.default_rng(0)
    for _ in range(40):
        cohort = rng.choice(9, size=3, replace=False).tolist()
        memory.admit(cohort)
        assert set(cohort) <= set(memory.workers)
        memory.update(cohort, torch.from_numpy(rng.standard_normal((3, 3))))


def test_policies_are_listed_with_a_description():
    assert set(POLICIES.names()) >= {"least_frequent", "least_recent", "fifo", "reservoir", "most_redundant"}
    assert all(kind.description for _, kind in POLICIES.items())


def test_an_unknown_policy_is_named():
    with pytest.raises(UserError, match=r"algorithm.memory_policy=lru is not known; allowed: fifo, least_frequent"):
        GradientMemory(3, 3, decay=0.5, policy="lru")


def test_a_policy_outside_the_package_registers_by_being_defined():
    class LastIn(Policy, name="lifo"):
        description = "the owner that entered last"

        def victim(self, slots: Slots, candidates: Integers) -> int:
            return int(candidates[-1])

    try:
        assert play("lifo", [[0], [1], [2], [3]]) == {0, 1, 3}
        with pytest.raises(ValueError, match=r"algorithm\.memory_policy=lifo is registered already"):
            type("Again", (Policy,), {}, name="lifo")
    finally:
        del POLICIES._entries["lifo"]
