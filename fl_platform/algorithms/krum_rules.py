"""What the number of updates that Multi-Krum averages has to do with the rest of a configuration; needs no torch."""

from fl_platform.config.rules import Rules
from fl_platform.config.schema import Config
from fl_platform.errors import UserError


class MultiKrumRules(Rules):
    """No more updates can be averaged than a cohort sends."""

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        selected = config.algorithm["selected"]
        if selected is not None and selected > config.cohort_size:
            raise UserError(
                f"algorithm.selected={selected} is not allowed; it must be <= cohort_size={config.cohort_size}"
            )
