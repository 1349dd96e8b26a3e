"""Which slot of the gradient memory is given to a newly sampled worker."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fl_platform.config.registry import POLICIES

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Slots:
    """What a policy may look at; arrays have one entry per slot of the memory."""

    count: Integers  # rounds in which the owner was sampled since it entered: c(i) of the paper
    inserted: Integers  # order of entry
    last_sampled: Integers  # round in which the owner was last sampled
    is_new: NDArray[np.bool_]  # entered this round, holds no update yet
    cosines: Callable[[], NDArray[np.float64]]  # between the remembered updates; zero ones have a zero diagonal
    generator: np.random.Generator  # fixed by seed, round and the worker that enters


class Policy(ABC):
    """One eviction rule. A subclass registers itself: ``class Mine(Policy, name="mine")``."""

    description: ClassVar[str]

    def __init_subclass__(cls, *, name: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        POLICIES.add(name, cls, cls)

    @abstractmethod
    def victim(self, slots: Slots, candidates: Integers) -> int:
        """The slot to empty, one of ``candidates``: slots whose owner is not in the cohort, earliest entry first."""


def get_policy(name: str) -> Policy:
    """Return a new policy; UserError for a name that is not registered."""
    policy: Policy = POLICIES.get(name)()
    return policy


class LeastFrequent(Policy, name="least_frequent"):
    """Evicts the worker sampled least often."""

    description = "the owner sampled least often since it entered; the paper's mem_red, ties to the earliest entry"

    def victim(self, slots: Slots, candidates: Integers) -> int:
        return int(candidates[slots.count[candidates].argmin()])


class LeastRecent(Policy, name="least_recent"):
    """Evicts the worker not sampled for longest."""

    description = "the owner not sampled for longest"

    def victim(self, slots: Slots, candidates: Integers) -> int:
        return int(candidates[slots.last_sampled[candidates].argmin()])


class FirstIn(Policy, name="fifo"):
    """Evicts the worker that entered first."""

    description = "the owner that entered first"

    def victim(self, slots: Slots, candidates: Integers) -> int:
        return int(candidates[0])


class Reservoir(Policy, name="reservoir"):
    """Evicts any worker with equal probability."""

    description = "any owner with equal probability, fixed by the seed"

    def victim(self, slots: Slots, candidates: Integers) -> int:
        return int(slots.generator.choice(candidates))


class MostRedundant(Policy, name="most_redundant"):
    """Evicts the worker whose update the others explain best."""

    description = "the owner whose remembered update is best explained by a linear combination of the others"

    def victim(self, slots: Slots, candidates: Integers) -> int:
        known = np.flatnonzero(~slots.is_new)
        cosines = slots.cosines()[np.ix_(known, known)]
        present = cosines.diagonal() > 0
        # For unit vectors the squared distance to the span of the others is 1 / (Q^-1)_ii; the jitter keeps dependent
        # updates, whose distance is zero, invertible.
        inverse = torch.linalg.inv(torch.from_numpy(cosines + np.diag(np.where(present, 1e-10, 1.0))))
        distance = np.full(len(slots.count), np.inf)
        distance[known] = np.where(present, 1.0 / inverse.diagonal().numpy(), 0.0)
        rounded = distance[candidates].round(9)  # equal up to round-off: the earliest entry goes
        return int(candidates[rounded.argmin()])
