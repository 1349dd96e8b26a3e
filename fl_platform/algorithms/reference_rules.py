"""What a run without communication has to do with the rest of a configuration; needs no torch."""

from fl_platform.config.rules import Rules
from fl_platform.config.schema import Config
from fl_platform.errors import UserError


class ReferenceRules(Rules):
    """Nothing is sent: there is nothing to compress and no update to be faulty."""

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        name = config.algorithm["name"]
        if config.compression.name != "none":
            raise UserError(f"compression.name={config.compression.name} with algorithm.name={name}: nothing is sent")
        if config.faults.kind not in ("none", "label_flip"):
            raise UserError(f"faults.kind={config.faults.kind} with algorithm.name={name}: nothing is sent")
        if config.server_lr != 1 or config.server_lr_schedule != "constant":
            raise UserError(
                f"server_lr={config.server_lr:g} with algorithm.name={name}: there is no server whose steps it could "
                "scale; leave server_lr and its schedule out"
            )
