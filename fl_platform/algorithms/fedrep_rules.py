"""What the steps of FedRep's two phases have to do with the rest of a configuration; needs no torch."""

from typing import Any

from fl_platform.config.rules import Rules
from fl_platform.config.schema import Config
from fl_platform.errors import UserError

HEAD_STEPS = 3


class FedRepRules(Rules):
    """Some of a round's steps are left for the shared layers."""

    @classmethod
    def open_values(cls, config: Config) -> dict[str, Any]:
        values = super().open_values(config)
        if config.algorithm["head_steps"] is None:
            values["head_steps"] = HEAD_STEPS if config.local_steps is None else min(HEAD_STEPS, config.local_steps - 1)
        return values

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        given, steps = config.algorithm["head_steps"], config.local_steps
        if steps is not None and given >= steps:
            raise UserError(
                f"algorithm.head_steps={given} is not allowed; it must be < local_steps={steps}, "
                "or no step is left that trains the shared layers"
            )
