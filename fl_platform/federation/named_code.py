"""Code that a configuration names: a checkpoint is data, and what its configuration names is imported only if trusted.

Trusted is what the user names: in the keys of a run, beside ``--resume`` or ``export``, or to ``load_model``.
"""

from collections.abc import Collection
from typing import Any

from fl_platform.config.given import Given, select
from fl_platform.config.schema import Config, shown, to_dict
from fl_platform.errors import UserError

RUN_KEYS = ("plugins", "model.name", "callbacks")
"""Keys whose code a run imports or calls."""
MODEL_KEYS = ("plugins", "model.name")
"""Those that a trained model needs."""
_trusted: set[str] = set()


def code_arguments(config: Given, keys: Collection[str] = RUN_KEYS) -> dict[str, Any]:
    """The keys of a configuration that name code: plugins, callbacks, and a model by its dotted path."""
    named = {key: select(config, key) for key in keys}
    if isinstance(named.get("model.name"), str) and "." not in named["model.name"]:
        del named["model.name"]  # one of the platform's own, or of a plugin
    return {key: value for key, value in named.items() if value}


def trust(config: Config) -> None:
    """Note the code of a configuration that the user gave: models of runs of this process can be read again."""
    _trusted.update(names_in(to_dict(config)))


def trusted() -> set[str]:
    """The names of all code that ``trust`` noted."""
    return set(_trusted)


def names_in(config: Given) -> set[str]:
    """The dotted names of all code that a configuration names."""
    return {name for value in code_arguments(config).values() for name in _names(value)}


def refuse_unnamed_code(saved: Config, given: Collection[str], source: str, keys: Collection[str] = RUN_KEYS) -> None:
    """Raise UserError unless the user named all code of a checkpoint's configuration, in ``given``.

    ``saved`` is that configuration with the keys that its ``point`` and ``chosen`` add.
    """
    named = code_arguments(to_dict(saved), keys)
    missing = [f"{key}={shown(value)}" for key, value in named.items() if not set(_names(value)) <= set(given)]
    if missing:
        raise UserError(
            f"{source}: the checkpoint names code to import, which a file alone may not start; "
            f"if you trust it, give it again: {' '.join(missing)}"
        )


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else [str(value)]
