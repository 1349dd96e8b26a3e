"""The filter of the dashboard: text in, the runs it leaves out.

A filter is a list of terms, all of which must hold. A term is ``key OPERATOR value``, or a word that must occur in
what names the run (id, name, algorithm, scenario, state, sweep, tags). Operators are ``=``, ``!=``, ``>=``, ``<=``,
``>``, ``<`` and ``~`` (contains). After ``=``, ``!=`` and ``~`` several values may stand, separated by commas: any
of them. ``*`` in a value stands for any text; quotes keep spaces and commas; ``-`` before a term turns it round.
"""

import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fl_platform.dashboard.quantities import Catalogue, as_number
from fl_platform.errors import UserError, visible
from fl_platform.reporting.measures import is_share
from fl_platform.reporting.shown import ShownRun

LONGEST = 400_000  # characters: the ids of ten thousand ticked runs
_ORDER: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BARE = re.compile(r'[^\s",]+')
_WORD = re.compile(r'[^\s"]+')
_COMPARISON = re.compile(r'([^\s"=!<>~,]+|"(?:[^"\\]|\\.)*")\s*(==|!=|>=|<=|=|>|<|~)\s*')
_JOINTS = ("or", "and", "in", "not", "&&")
_PERCENT = re.compile(r"([-+.\d]\S*)%$")


@dataclass(frozen=True)
class Term:
    """``key`` is None for a word, which is the only value then."""

    key: str | None
    operator: str
    values: tuple[str, ...]
    is_negated: bool = False


def parse(text: str) -> list[Term]:
    """The terms of a filter; UserError says what is wrong with it."""
    if len(text) > LONGEST:
        raise UserError(f"the filter has {len(text)} characters; at most {LONGEST} are read")
    terms = []
    place = _skip(text, 0)
    while place < len(text):
        is_negated = text[place] == "-" and place + 1 < len(text) and not text[place + 1].isspace()
        place += is_negated
        if match := _COMPARISON.match(text, place):
            values, place = _values(text, match.end(), match)
            sign = "=" if match[2] == "==" else match[2]
            terms.append(_checked(Term(_unquote(match[1]), sign, values, is_negated), match))
        elif text[place] in "=!<>~":
            raise UserError(f"'{visible(_WORD.match(text, place)[0])}' has no key before it; write key=value")  # type: ignore[index]
        else:
            is_quoted = text[place] == '"'
            value, place = _value(text, place, _WORD)
            if not is_quoted and ("|" in value or (terms and value.lower() in _JOINTS)):
                raise UserError(
                    f"'{visible(value)}' does not join terms, all of which must hold; any of several values is "
                    'key=one,other, and a word that is meant as such stands in quotes: "or"'
                )
            terms.append(Term(None, "~", (value,), is_negated))
        place = _skip(text, place)
    return terms


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _values(text: str, place: int, match: "re.Match[str]") -> tuple[tuple[str, ...], int]:
    values = []
    while True:
        if place >= len(text) or text[place].isspace() or text[place] == ",":
            raise UserError(
                f"'{visible(match[0].strip())}' has no value after it; write {visible(match[1])}{match[2]}value"
            )
        value, place = _value(text, place, _BARE)
        values.append(value)
        if not text.startswith(",", place):
            return tuple(values), place
        place += 1


def _value(text: str, place: int, bare: "re.Pattern[str]") -> tuple[str, int]:
    if text[place] != '"':
        match = bare.match(text, place)
        assert match is not None
        return match[0], match.end()
    match = _QUOTED.match(text, place)
    if match is None:
        raise UserError(f"the quote before '{visible(text[place + 1 : place + 21])}' is not closed")
    return _unquote(match[0]), match.end()


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _checked(term: Term, match: "re.Match[str]") -> Term:
    if term.operator in _ORDER:
        if len(term.values) > 1:
            raise UserError(f"{term.key}{term.operator} takes one number, not {len(term.values)} values")
        if _bound(term.values[0]) is None:
            raise UserError(
                f"{visible(term.key)}{term.operator}{visible(term.values[0])} needs a number after {match[2]}"
            )
    return term


def _bound(text: str) -> float | None:
    """A number; ``90%`` is 0.9."""
    match = _PERCENT.match(text)
    found = as_number(match[1] if match else text)
    return found / 100 if match and found is not None else found


def select(terms: Sequence[Term], catalogue: Catalogue, runs: Iterable[ShownRun]) -> list[ShownRun]:
    """The runs for which every term holds; UserError for a key that no run has."""
    tests = [_test(term, catalogue) for term in terms]
    return [run for run in runs if all(test(run) for test in tests)]


def _test(term: Term, catalogue: Catalogue) -> Callable[[ShownRun], bool]:
    if term.key is None:
        part = term.values[0].lower()
        return lambda run: (part in run.text) != term.is_negated
    name = catalogue.resolve(term.key)
    get, holds = catalogue.getter(name), _value_test(term)
    if term.operator in _ORDER and (name == "top" or is_share(name)) and (_bound(term.values[0]) or 0) > 1:
        value = visible(term.values[0])
        raise UserError(f"{name} is a share from 0 to 1: write {name}{term.operator}{value.rstrip('%')}% for per cent")
    is_turned = term.is_negated != (term.operator == "!=")
    known: dict[Any, bool] = {}  # a quantity has few different values, runs are many

    def test(run: ShownRun) -> bool:
        found = False
        for value in get(run):
            if value not in known:
                known[value] = holds(value)
            found = found or known[value]
        return found != is_turned

    return test


def _value_test(term: Term) -> Callable[[Any], bool]:
    """Whether one value fits; of ``!=`` whether it is equal, which ``_test`` turns round."""
    if compare := _ORDER.get(term.operator):
        bound = _bound(term.values[0])
        assert bound is not None
        return lambda value: (number := as_number(value)) is not None and compare(number, bound)
    if term.operator == "~":
        parts = [value.lower() for value in term.values]
        return lambda value: any(part in str(value).lower() for part in parts)
    tests = [_equals(wanted) for wanted in term.values]
    return lambda value: any(test(value) for test in tests)


def _equals(wanted: str) -> Callable[[Any], bool]:
    number, text = _bound(wanted), wanted.lower()
    texts = {text, "null"} if text == "none" else {text}  # Python's name of null, and the value of some keys
    pattern = re.compile(fnmatch.translate(text.replace("[", "[[]"))) if "*" in text else None

    def test(value: Any) -> bool:
        if number is not None and (found := as_number(value)) is not None:
            return math.isclose(found, number, rel_tol=1e-6)  # configurations are shown with six digits
        shown = str(value).lower()
        return bool(pattern.match(shown)) if pattern else shown in texts

    return test
