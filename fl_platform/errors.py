"""Errors that a user may see: one sentence that says what to change, and the exit code it ends a command with."""

import difflib
import errno
import os
import unicodedata
from collections.abc import Iterable

LONGEST_SENTENCE = 2000
LONGEST_TRACE = 20_000
NO_SPACE_LEFT = (errno.ENOSPC, errno.EDQUOT)


class UserError(ValueError):
    """Bad input. The command line prints the message alone and exits with ``exit_code``."""

    exit_code = 2


class DiskFull(UserError):
    """No space is left to write to: nothing is wrong with the input, and the same command works once there is space."""

    exit_code = 4


class OutOfMemory(Exception):
    """The memory of a device did not suffice for a run: it has crashed."""

    exit_code = 1


class UserCodeError(Exception):
    """Code that is not the platform's failed in a round: the run has crashed.

    ``trace`` is that code's traceback, made fit for a terminal.
    """

    exit_code = 1

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = shortened("\n".join(map(visible, trace.split("\n"))), LONGEST_TRACE)


def cannot_write(place: str, error: OSError, hint: str = "") -> UserError:
    """Build the error for something that cannot be written.

    ``place`` is the key, option or path that the sentence names, and ``hint`` ends the sentence. Returns a
    ``DiskFull`` where ``error`` says that no space is left, and a plain ``UserError`` otherwise.
    """
    kind = DiskFull if error.errno in NO_SPACE_LEFT else UserError
    reason = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return kind(f"{place} cannot be written: {reason}{hint}")


def visible(text: object) -> str:
    """One line without control, direction-changing or unpaired surrogate characters, which become \\xNN."""
    return "".join(
        _code(char) if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char for char in str(text)
    )


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def sentence(text: object) -> str:
    """A message fit for a terminal: what it quotes cannot break lines, send escapes, or fill the screen."""
    return shortened(visible(text), LONGEST_SENTENCE)


def shortened(text: str, length: int) -> str:
    """A text, or its beginning and end where it is longer than ``length``."""
    return text if len(text) <= length else f"{text[: length // 2]} [...] {text[-length // 2 :]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A trailing hint such as ``; did you mean 'fedavg'?``, or nothing when no name is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if len(word) < 100 else []
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown_name(key: str, value: str, known: Iterable[str]) -> UserError:
    """``key=value`` names nothing that is registered."""
    known = sorted(known)
    return UserError(f"{key}={value} is not known; allowed: {', '.join(known)}{did_you_mean(value, known)}")
