"""The one exception a user may see: a sentence that says what to change."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The command line prints the message alone and exits with code 2."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A trailing hint such as ``; did you mean 'fedavg'?``, or nothing when no name is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown_name(key: str, value: str, known: Iterable[str]) -> UserError:
    """``key=value`` names nothing that is registered."""
    known = sorted(known)
    return UserError(f"{key}={value} is not known; allowed: {', '.join(known)}{did_you_mean(value, known)}")
