"""Why a run failed: code that is not the platform's (a plugin, model, data set or callback), or memory."""

import functools
import inspect
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException

from fl_platform.algorithms.returned import HookError
from fl_platform.config.plugins import users_packages
from fl_platform.engines.device_memory import is_out_of_memory
from fl_platform.errors import NO_SPACE_LEFT, DiskFull, OutOfMemory, UserCodeError, UserError
from fl_platform.federation.stopped import SkippedRound

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def is_users(file: str) -> bool:
    """Whether a source file is of a plugin, or neither the platform's nor of Python and the installed packages."""
    path = Path(file).resolve()
    if file.startswith("<") or path.is_relative_to(_PACKAGE):
        return False
    is_installed = any(path.is_relative_to(folder) or file.startswith(folder) for folder in _LIBRARIES)
    return not is_installed or any(_is_part_of(path, package) for package in users_packages())


@functools.cache
def is_users_class(kind: type) -> bool:
    """Whether a class is neither the platform's nor of Python and the installed packages."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and is_users(file)


def _is_part_of(path: Path, package: str) -> bool:
    module = sys.modules.get(package)
    folders = [*getattr(module, "__path__", ())]
    return path == Path(getattr(module, "__file__", None) or "").resolve() or any(
        path.is_relative_to(Path(folder).resolve()) for folder in folders
    )


def translated(error: BaseException, round: int, model: type) -> BaseException:
    """What ended a run, as an error whose type says why: code of the user's, or memory; else the error itself."""
    if isinstance(error, MisconfigurationException) and not _users_frames(error):  # of one of its callbacks
        return UserError(f"Lightning refuses to go on: {' '.join(str(error).split())}")
    is_full = isinstance(error, OSError) and error.errno in NO_SPACE_LEFT
    if isinstance(error, OutOfMemory | KeyboardInterrupt) or (
        isinstance(error, OSError | UserError) and not _is_theirs(error, round or int(is_full))
    ):
        return error
    when = f"round {round}" if round else "before the first round"
    if isinstance(error, OSError) and is_full:
        return DiskFull(
            f"{when}: your code in {_where(_users_frames(error))} could not write {error.filename or 'a file'}: "
            f"{error.strerror}; what was saved stays, and --continue goes on from it"
        )
    if is_out_of_memory(error):
        return OutOfMemory(
            f"{when}: {': '.join(filter(None, ['out of memory', ' '.join(str(error).split())]))}; a smaller batch_size "
            "or cohort_chunk needs less, and --continue goes on from the newest checkpoint"
        )
    return explain(error, round, model) or error


def _is_theirs(error: BaseException, round: int) -> bool:
    """Whether code of the user's raised an error in a round, not the platform on its behalf."""
    own = [is_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__) if _is_known(frame.filename)]
    return bool(round and own and own[-1])


def _users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]


def _where(frames: list[traceback.FrameSummary]) -> str:
    """The hook of the user's, and the file and line in which an error came up."""
    return f"{frames[0].name} ({frames[-1].filename}, line {frames[-1].lineno})"


def _is_known(file: str) -> bool:
    return is_users(file) or Path(file).resolve().is_relative_to(_PACKAGE)


def explain(error: BaseException, round: int, model: type) -> UserCodeError | None:
    """The error that says whose code failed, where and in which round, with the user's part of the traceback.

    A gradient that autograd refuses, as after an operation in place, counts as a fault of the ``model``, if that is the
    user's. ``round`` is 0 before the first one. None where no code of the user's took part, so that the error is the
    platform's own.
    """
    frames = _users_frames(error)
    if frames:
        where = _where(frames)
        reason = f"{type(error).__name__}: {_text(error)}"
    elif isinstance(error, HookError) and (place := _source(error.algorithm, error.hook)):
        where, reason = f"{error.hook} ({place})", str(error)
    elif isinstance(error, RuntimeError) and _is_of_autograd(error) and (place := _place(model)):
        where, reason = f"{model.__name__} ({place})", f"its gradient cannot be computed: {error}"
    elif isinstance(error, SkippedRound):
        where, reason = "a callback", str(error)
    else:
        return None
    trace = "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)])
    return UserCodeError(
        f"round {round}: your code failed in {where}: {reason}; "
        "what was saved stays, and --continue goes on from the newest checkpoint"
        if round
        else f"before the first round: your code failed in {where}: {reason}",
        trace,
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001, of the user's code
        return "(its text cannot be made)"


def _source(algorithm: Any, hook: str) -> str:
    """File and line of a hook, empty where it is the platform's."""
    return _place(inspect.unwrap(getattr(type(algorithm), hook)))


def _is_of_autograd(error: BaseException) -> bool:
    return any("torch/autograd/" in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def _place(code: Any) -> str:
    """File and line of a class or function, empty where it is the platform's or a package's."""
    try:
        file, line = inspect.getsourcefile(code) or "", inspect.getsourcelines(code)[1]
    except (OSError, TypeError):
        return ""
    return f"{file}, line {line}" if file and is_users(file) else ""
