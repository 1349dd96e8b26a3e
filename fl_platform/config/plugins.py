"""Modules outside the repository that add algorithms, models, data sets or memory policies by being imported."""

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from fl_platform.errors import UserError

_OF_THE_PLATFORM = ("fl_platform", "lightning", "pytorch_lightning", "torch", "torchvision")
"""Packages whose modules a key may name, as in model.name=torch.nn.Linear, and that are not the user's all the same."""
_PACKAGE = Path(__file__).parents[1]
_packages: set[str] = set()


def users_packages() -> set[str]:
    """The top-level names of what was imported because a key names it: a file of the user's or an installed package."""
    return _packages.difference(_OF_THE_PLATFORM)


def import_plugins(plugins: list[str]) -> None:
    """Import each module, looking in the working directory too; UserError for one that cannot be imported."""
    for plugin in plugins:
        import_module(plugin, f"plugins=[{plugin}]")


def import_module(name: str, source: str) -> ModuleType:
    """Import a module of the user's, looking in the working directory too.

    ``source`` is the key and value that name it. Raises UserError, with the line that failed, whatever the module
    raises: code that is imported may fail in any way, and may try to end the process.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(name)
    except UserError as error:  # such as a name that is registered already
        raise UserError(f"{source} cannot be imported: {error}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(f"{source} cannot be imported: {_reason(error)}") from error
    _packages.add(name.partition(".")[0])
    return module


def _reason(error: BaseException) -> str:
    """The exception, and the line of the user's module that raised it, or called what did."""
    if isinstance(error, SyntaxError):
        at = f" ({error.filename}, line {error.lineno})" if error.filename else ""
        return f"SyntaxError: {error.msg}{at}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, ImportError | ValueError) and not frames:
        return str(error)
    return f"{type(error).__name__}: {error}{at}"


def _is_machinery(file: str) -> bool:
    if Path(file).is_relative_to(_PACKAGE):
        return True
    is_wandb = f"{os.sep}site-packages{os.sep}wandb{os.sep}" in file  # it replaces sys.exit in a process that has a run
    return is_wandb or file == importlib.__file__ or file.startswith("<frozen ")
