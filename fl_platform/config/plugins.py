"""Modules outside the repository that add algorithms, models, data sets or memory policies by being imported."""

import importlib
import sys

from fl_platform.errors import UserError


def import_plugins(plugins: list[str]) -> None:
    """Import each module, looking in the working directory too."""
    if plugins and "" not in sys.path:
        sys.path.insert(0, "")
    for plugin in plugins:
        try:
            importlib.import_module(plugin)
        except (ImportError, ValueError, TypeError) as error:  # also an empty name, or one that starts with a dot
            raise UserError(f"plugins=[{plugin}] cannot be imported: {error}") from None
