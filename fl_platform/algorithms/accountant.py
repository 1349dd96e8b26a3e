"""What DP-FedAvg and DP-FTRL cost in privacy, by Google's dp-accounting (https://github.com/google/differential-privacy).

A round is the Gaussian mechanism: the sum of updates of norm at most C, plus noise of standard deviation z * C. How
much a worker's chance of not being sampled takes back depends on the sampler, and only what it gives is claimed:

    poisson   every worker takes part with probability q = S / N, independently. Neighbours: one worker more or fewer,
              who changes the sum by C. Event: Poisson-sampled Gaussian with q and z.
    fixed     S of the N workers, without replacement. Neighbours: one worker replaced by another, who changes the sum
              by 2 C. Event: Gaussian with z / 2 sampled without replacement (Wang, Balle and Kasiviswanathan, 2019,
              https://arxiv.org/abs/1808.00087). This costs far more than ``poisson`` at the same z.
    none      nothing is taken back: every worker counts as if it took part in every round. Event: Gaussian with z.

DP-FTRL releases the nodes of a tree of rounds: event ``SingleEpochTreeAggregationDpEvent`` for each tree, in which a
worker takes part once; finished trees and the begun one are composed.

Rounds are composed as Renyi divergences and turned into epsilon at delta.
"""

import logging
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np

from fl_platform.config.rules import Rules
from fl_platform.config.schema import Config
from fl_platform.errors import UserError

AMPLIFICATIONS = ("poisson", "fixed", "none")
ORDERS = (*(1 + step / 4 for step in range(1, 17)), *range(6, 64), 128, 256, 512)


def require_accountant() -> None:
    """Raise UserError where the package of the accountant is not installed."""
    if find_spec("dp_accounting") is None:
        raise UserError(
            "differential privacy needs the package dp-accounting; install it with pip install 'fl_platform[privacy]'"
        )


def dp_accounting() -> Any:
    """Return the package, whose import takes a second."""
    import dp_accounting as package
    import dp_accounting.rdp

    return package


@dataclass(frozen=True)
class Accountant:
    """epsilon after any number of equal rounds."""

    noise_multiplier: float  # z
    num_workers: int
    cohort_size: int
    amplification: str

    def epsilon(self, rounds: int, delta: float) -> float:
        """Return epsilon at ``delta`` after this many rounds; infinite without noise."""
        if rounds == 0:
            return 0.0
        if self.noise_multiplier == 0:
            return float("inf")
        spent, _ = dp_accounting().rdp.compute_epsilon(ORDERS, rounds * self._of_a_round, delta)
        return float(spent)

    @cached_property
    def _of_a_round(self) -> np.ndarray:
        """Renyi divergences of one round; those of t rounds are t times as large."""
        package = dp_accounting()
        accountant = package.rdp.RdpAccountant(ORDERS, self._relation(package))
        absl = logging.getLogger("absl")
        level = absl.level
        absl.setLevel(logging.ERROR)  # it warns of every order that it leaves out
        try:
            accountant.compose(self._event(package))
        finally:
            absl.setLevel(level)
        return np.asarray(accountant._rdp)  # composing afresh in every round takes up to 0.2 s

    def _relation(self, package: Any) -> Any:
        relations = package.NeighboringRelation
        return relations.REPLACE_ONE if self.amplification == "fixed" else relations.ADD_OR_REMOVE_ONE

    def _event(self, package: Any) -> Any:
        if self.amplification == "fixed":
            halved = package.GaussianDpEvent(self.noise_multiplier / 2)
            return package.SampledWithoutReplacementDpEvent(self.num_workers, self.cohort_size, halved)
        whole = package.GaussianDpEvent(self.noise_multiplier)
        if self.amplification == "poisson":
            return package.PoissonSampledDpEvent(self.cohort_size / self.num_workers, whole)
        return whole


@dataclass(frozen=True)
class TreeAccountant:
    """epsilon after any number of rounds of trees of equal length, in each of which a worker takes part once."""

    noise_multiplier: float  # z: noise of a node in units of C
    rounds_per_tree: int

    def epsilon(self, rounds: int, delta: float) -> float:
        """Return epsilon at ``delta`` after this many rounds; infinite without noise."""
        if rounds == 0:
            return 0.0
        if self.noise_multiplier == 0:
            return float("inf")
        package = dp_accounting()
        accountant = package.rdp.RdpAccountant(ORDERS, package.NeighboringRelation.REPLACE_SPECIAL)
        finished, begun = divmod(rounds, self.rounds_per_tree)
        for count, steps in ((finished, self.rounds_per_tree), (1, begun)):
            if count and steps:
                accountant.compose(package.SingleEpochTreeAggregationDpEvent(self.noise_multiplier, steps), count)
        return float(accountant.get_epsilon(delta))


def rounds_per_epoch(num_workers: int, cohort_size: int) -> int:
    """Return in how many rounds ``cohort_sampling=epochs`` asks every worker once."""
    return -(-num_workers // cohort_size)


def amplification_of(config: Config) -> str:
    """Return what the sampler of a run lets an accountant claim.

    Where workers come and go, the chance of being sampled is not the one that the accountant knows.
    """
    is_known = config.availability.name == "always" and config.cohort_sampling in AMPLIFICATIONS
    return config.cohort_sampling if is_known else "none"


def open_delta(config: Config) -> dict[str, Any]:
    """Return delta where it was left open: N^-1.1."""
    if config.algorithm["delta"] is not None:
        return {}
    return {"delta": config.population**-1.1 if config.population > 1 else 0.5}


def check_noise(config: Config) -> None:
    """Raise UserError for noise without an accountant or without a clipping norm, to which it is relative."""
    if config.algorithm["noise_multiplier"] > 0:
        require_accountant()
        if config.algorithm["clip_norm"] is None:
            raise UserError("algorithm.clip_norm=null is not allowed with noise; it must be > 0")


class TreeRules(Rules):
    """Fills in delta; refuses what is not private."""

    @classmethod
    def open_values(cls, config: Config) -> dict[str, Any]:
        return {**super().open_values(config), **open_delta(config)}

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        check_noise(config)


class PrivacyRules(Rules):
    """Fills in delta, the noise of counts and what the sampler lets one claim; refuses what is not private."""

    @classmethod
    def open_values(cls, config: Config) -> dict[str, Any]:
        given = config.algorithm
        values = {**super().open_values(config), **open_delta(config)}
        if given["amplification"] is None:
            values["amplification"] = amplification_of(config)
        if given["clipping"] == "adaptive" and given["count_noise"] is None:
            values["count_noise"] = max(config.cohort_size / 20, given["noise_multiplier"])
        return values

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        check_noise(config)
        given = config.algorithm
        if given["clipping"] == "adaptive" and given["clip_norm"] is None:
            raise UserError("algorithm.clip_norm=null is not allowed with adaptive clipping; it must be > 0")
        if given["clipping"] == "adaptive" and given["noise_multiplier"] >= 2 * given["count_noise"]:
            raise UserError(
                f"algorithm.count_noise={given['count_noise']:g} is not allowed; it must be more than half of "
                f"algorithm.noise_multiplier={given['noise_multiplier']:g}"
            )
        if given["amplification"] not in ("none", amplification_of(config)):
            raise UserError(
                f"algorithm.amplification={given['amplification']} is not what the sampler gives; "
                f"allowed: {' | '.join(dict.fromkeys((amplification_of(config), 'none')))}"
            )
