"""What an algorithm says about a configuration beyond its options, called when the configuration is resolved."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fl_platform.config.schema import Config


class Rules:
    """The base of every algorithm: nothing left open, nothing refused.

    An algorithm overrides these where it likes. Rules in a class of their own, which extends this one in a module that
    needs no torch and is mixed into the algorithm, are called without importing the algorithm: ``config``, ``list`` and
    ``sweep check`` then stay as fast as for others.
    """

    @classmethod
    def open_values(cls, config: "Config") -> dict[str, Any]:
        """Values for fields that are null in ``config.algorithm`` and follow from the rest of the configuration.

        They are filled in before the run is named: a run with such a value is the one where it was given.
        """
        return {}

    @classmethod
    def check(cls, config: "Config") -> None:
        """Raise UserError for hyper-parameters (``config.algorithm``) that do not fit the rest of the configuration."""
