"""Who exists, who is sampled, who reports."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fl_platform.config.groups import AvailabilityConfig
from fl_platform.seeding import generator


@dataclass(frozen=True)
class Cohort:
    """The workers of a round, in sampling order."""

    sampled: np.ndarray
    reporting: np.ndarray  # those of them whose update arrives; the others never start


class WorkerPool:
    """Samples cohorts under an availability model: S workers without replacement, each with probability S/N, or epochs.

    In an epoch of ceil(N/S) rounds every worker is asked once, in an order drawn anew for each; the last cohort may be
    smaller.

    always: everybody answers (the paper). bernoulli: each sampled worker fails with a fixed probability.
    markov: before each round online workers leave and offline ones return with fixed probabilities, and cohorts
    are sampled from those online; everybody is online before the first round.
    """

    def __init__(
        self,
        num_workers: int,
        cohort_size: int,
        availability: AvailabilityConfig,
        seed: int,
        sampling: str = "fixed",
    ) -> None:
        self.num_workers, self.cohort_size, self.sampling = num_workers, cohort_size, sampling
        self.availability, self.seed = availability, seed
        self._online = np.ones(num_workers, dtype=bool) if availability.name == "markov" else None

    def sample(self, round: int) -> Cohort:
        """The cohort of a round; markov pools must be asked round by round."""
        candidates: np.ndarray | int = self.num_workers
        size = self.cohort_size
        if self._online is not None:
            self._advance(round)
            candidates = np.flatnonzero(self._online)
            size = min(size, len(candidates))
        source = generator(self.seed, "cohort", round)
        if self.sampling == "poisson":
            taken = np.flatnonzero(source.random(self.num_workers) < self.cohort_size / self.num_workers)
            sampled = np.intersect1d(taken, candidates) if self._online is not None else taken
        elif self.sampling == "epochs":
            turn = self._turn(round)
            sampled = turn[self._online[turn]] if self._online is not None else turn
        else:
            sampled = source.choice(candidates, size, replace=False)
        reporting = sampled
        if self.availability.name == "bernoulli":
            draw = generator(self.seed, "failures", round).random(len(sampled))
            arrives = draw >= self.availability.failure_probability
            reporting = sampled[arrives]
        return Cohort(sampled, reporting)

    def _turn(self, round: int) -> np.ndarray:
        """Those whose turn it is in this round of their epoch; rounds count from 1."""
        epoch, place = divmod(round - 1, -(-self.num_workers // self.cohort_size))
        order = generator(self.seed, "cohorts of epoch", epoch).permutation(self.num_workers)
        return order[place * self.cohort_size : (place + 1) * self.cohort_size]

    def _advance(self, round: int) -> None:
        assert self._online is not None
        draw = generator(self.seed, "availability", round).random(self.num_workers)
        leaves = self._online & (draw < self.availability.leave_probability)
        returns = ~self._online & (draw < self.availability.return_probability)
        self._online = (self._online & ~leaves) | returns

    def state_dict(self) -> dict[str, Any]:
        return {} if self._online is None else {"online": torch.from_numpy(self._online.copy())}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        if "online" in saved:
            self._online = saved["online"].numpy().copy()
