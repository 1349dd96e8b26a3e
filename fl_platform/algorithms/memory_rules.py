"""What the size and the policy of GradMA's memory have to do with the rest of a configuration; needs no torch."""

from typing import Any

from fl_platform.config.registry import POLICIES
from fl_platform.config.rules import Rules
from fl_platform.config.schema import Config
from fl_platform.errors import UserError

PAPER_MEMORY_SIZE = 100


def default_memory_size(num_workers: int) -> int:
    """The paper's memory where there are so many workers, else one slot for each."""
    return min(PAPER_MEMORY_SIZE, num_workers)


def check_size(memory_size: int, cohort_size: int, num_workers: int) -> None:
    """Raise UserError unless the size is 0 (no memory), or between the cohort's and the number of workers."""
    if memory_size != 0 and not cohort_size <= memory_size <= num_workers:
        raise UserError(
            f"algorithm.memory_size={memory_size} is not allowed; it must be 0 or lie between "
            f"cohort_size={cohort_size} and num_workers={num_workers}"
        )


class MemoryRules(Rules):
    """Fills in the size of the memory and checks it against cohort and federation."""

    @classmethod
    def open_values(cls, config: Config) -> dict[str, Any]:
        size = config.algorithm["memory_size"]
        default = default_memory_size(config.population) if size is None else size
        return {**super().open_values(config), "memory_size": default}

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        check_size(config.algorithm["memory_size"], config.cohort_size, config.population)
        POLICIES.describe(config.algorithm["memory_policy"])
