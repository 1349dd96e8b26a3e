"""Failures of code that is not the platform's: a plugin, a model, a data set or a callback of the user's."""

import inspect
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from fl_platform.algorithms.base import HookError
from fl_platform.errors import UserCodeError

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_users(file: str) -> bool:
    """Whether a source file is neither the platform's nor of Python and the installed packages."""
    path = Path(file).resolve()
    return not (
        file.startswith("<")
        or path.is_relative_to(_PACKAGE)
        or any(path.is_relative_to(folder) or file.startswith(folder) for folder in _LIBRARIES)
    )


def explain(error: Exception, round: int, model: type) -> UserCodeError | None:
    """The error that says whose code failed, where and in which round, with the user's part of the traceback.

    A gradient that autograd refuses, as after an operation in place, counts as a fault of the ``model``, if that is the
    user's. None where no code of the user's took part, so that the error is the platform's own.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    if frames:
        hook, last = frames[0], frames[-1]
        where = f"{hook.name} ({last.filename}, line {last.lineno})"
        reason = f"{type(error).__name__}: {error}"
    elif isinstance(error, HookError) and (place := _source(error.algorithm, error.hook)):
        where, reason = f"{error.hook} ({place})", str(error)
    elif isinstance(error, RuntimeError) and _is_of_autograd(error) and (place := _place(model)):
        where, reason = f"{model.__name__} ({place})", f"its gradient cannot be computed: {error}"
    else:
        return None
    trace = "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])
    return UserCodeError(
        f"round {round}: your code failed in {where}: {reason}; "
        "what was saved stays, and --continue goes on from the newest checkpoint",
        trace,
    )


def _source(algorithm: Any, hook: str) -> str:
    """File and line of a hook, empty where it is the platform's."""
    return _place(inspect.unwrap(getattr(type(algorithm), hook)))


def _is_of_autograd(error: Exception) -> bool:
    return any("torch/autograd/" in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def _place(code: Any) -> str:
    """File and line of a class or function, empty where it is the platform's or a package's."""
    try:
        file, line = inspect.getsourcefile(code) or "", inspect.getsourcelines(code)[1]
    except (OSError, TypeError):
        return ""
    return f"{file}, line {line}" if file and is_users(file) else ""
