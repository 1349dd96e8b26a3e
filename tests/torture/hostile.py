"""Hostile args, values and bytes, and a judge of how a command takes them."""

import contextlib
import io
import random
import re
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from fl_platform.cli import main

LONGEST_SECONDS = 60  # of CPU: a case that takes longer hangs
MOST_BYTES = 2 << 30  # of address space that a case may add
LONGEST_MESSAGE = 4000  # characters

VALUES = (
    *("", "null", "~", "true", "no", "nan", ".nan", ".inf", "-.inf", "-1", "0", "1", "1e400", "-1e-400", "1_000"),
    *("0x1F", "0o7", "1:30", "2024-01-01", "9" * 30, "0.5", "1e-3", "3.0", "[]", "{}", "[1, [2]]", "{a: 1}", "[a, b]"),
    *("{a: {b: {c: 1}}}", "{1: 2}", "{null: 1}", "${oc.env:HOME}", "${seed}", "???", "${", "$", "&a [*a]", "*a"),
    *("!!python/object/apply:os.system ['touch hit']", "!!binary aGk=", "!!set {a}", "!x y", "- a", "? a", "a: b"),
    *(
        "../../escape",
        "/dev/null",
        "/dev/null/x",
        "/proc/self/mem",
        ".",
        "..",
        "/",
        "~/x",
        "a/b",
        "con",
        "-",
        "--",
        "=",
    ),
    *("\x1b[31mred\x1b[0m", "\x07", "a\nb", "a\r\nb", "\t", "\u202egnp", "\ufeff", "\u2028", "\ud800", "é" * 50),
    *("<script>alert(1)</script>", r"\input{/etc/passwd}", "%s %n {0}", "'; drop", "`touch hit`", "$(touch hit)"),
    *("x" * 5000, "[" * 3000, "{a: " * 500, '"', "'", "\\", "#", "|", ">", "%", "@", "fedavg", "digits", "gradma"),
)
"""Texts that are numbers out of range, YAML with a meaning of its own, paths, escapes, markup, and very long."""

texts = st.one_of(
    st.sampled_from(VALUES),
    st.text(max_size=20),
    st.text(st.characters(exclude_categories=()), max_size=10),  # surrogates too: what a file name may hold
    st.integers().map(str),
    st.floats().map(str),
)
scalars = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 3),
    st.floats(),
    st.dates(),
    st.binary(max_size=5),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3), max_leaves=6
)
json_values = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(), st.floats()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class TakesTooLong(BaseException):
    """Not an Exception: nothing may catch it on its way."""


@contextlib.contextmanager
def bounded(seconds: int = LONGEST_SECONDS, room: int = MOST_BYTES) -> Iterator[None]:
    """An alarm after so much CPU time, and so much more memory and no more."""

    def ring(*_: Any) -> None:
        raise TakesTooLong

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, ring)
    resource.setrlimit(resource.RLIMIT_AS, (used + room, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, before)


def call(*args: str) -> Outcome:
    """A command in this process, with streams that take and refuse what those of a terminal do."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(), bounded():
        warnings.simplefilter("ignore")
        try:
            code = main(list(args))
        except SystemExit as end:  # argparse's way out
            code = end.code if isinstance(end.code, int) else 1
    said, told = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))  # type: ignore[attr-defined]
    return Outcome(code, said, told)


def judge(*args: str, codes: tuple[int, ...] = (0, 2)) -> Outcome:
    """The command succeeds, or says in one sentence what is wrong with its input; what it raises is a defect."""
    outcome = call(*args)
    assert outcome.code in codes, f"{args} ended with {outcome.code}: {outcome.err[-2000:]}"
    if outcome.code == 2:
        check_sentence(args, outcome.err)
    return outcome


class Tally:
    """Judges cases and counts those a command accepted: a fuzz test that only meets refusals tests the first check."""

    def __init__(self) -> None:
        self.cases = self.accepted = 0

    def judge(self, *args: str, codes: tuple[int, ...] = (0, 2)) -> Outcome:
        """``judge``, counted; accepted is whatever does not end with exit code 2."""
        return self.count(judge(*args, codes=codes))

    def count(self, outcome: Outcome) -> Outcome:
        self.cases += 1
        self.accepted += outcome.code != 2
        return outcome

    def record(self, note: Callable[[str, object], None], what: str, at_least: float) -> None:
        """Note the figures; at least one case and, of a hundred or more, this share must have been accepted."""
        note(what, f"{self.cases}, {self.accepted} accepted")
        wanted = max(1, int(at_least * self.cases)) if self.cases >= 100 else 1
        assert self.accepted >= wanted, f"{self.accepted} of {self.cases} {what} accepted, expected {wanted} or more"


def check_sentence(args: tuple[str, ...], err: str) -> None:
    """The last line of stderr is the sentence: one line of bearable length, without control characters."""
    *before, last, end = err.split("\n")
    assert end == "", f"{args}: {err!r}"
    assert "Traceback" not in err, err
    for line in (*before, last):
        assert len(line) <= LONGEST_MESSAGE, f"{args}: {len(line)} characters"
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]", line), f"{args}: {line!r}"
    if args[:2] != ("sweep", "check"):  # which has a sentence for every problem of every file
        assert re.match(r"fl_platform[a-z ]*: (error: )?.*\w", last), f"{args}: {err!r}"
        assert not [line for line in before if line.startswith("fl_platform")], f"{args}: {err!r}"


def explore(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], count: int, sound: Any = None) -> None:
    """``check`` for an example that must be accepted and so many drawn ones, shrunk to the simplest one that fails."""
    settings = hypothesis.settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    explored = hypothesis.given(strategy)(lambda example: check(example))
    if sound is not None:
        explored = hypothesis.example(sound)(explored)
    settings(explored)()


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, overwritten, repeated, shifted, joined with rubbish, or replaced by it."""
    place, other = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    how = rng.randrange(8)
    if how == 0:
        return content[:place]
    if how in (1, 2):
        return flipped(content, rng, 1 if how == 1 else rng.randrange(2, 40))
    if how == 3:
        return content[:place] + rng.randbytes(other - place if other - place < 5000 else 50) + content[other:]
    if how == 4:
        return content[:other] + content[place:]
    if how == 5:
        return content[:place] + content[other:]
    if how == 6:
        number = rng.choice((b"\xff" * 8, bytes(8), b"\xff\xff\xff\x7f", b"\x7f" * 4))  # sizes that are not there
        return content[:place] + number + content[place + len(number) :]
    return rng.randbytes(rng.randrange(200))


def flipped(content: bytes, rng: random.Random, count: int) -> bytes:
    changed = bytearray(content)
    for _ in range(count):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damaged_text(text: str, rng: random.Random) -> bytes:
    """A text file with lines lost, moved, repeated or indented, with a value replaced, or with bytes damaged."""
    lines = text.splitlines()
    how, place = rng.randrange(7), rng.randrange(len(lines))
    if how == 0:
        return damaged(text.encode(), rng)
    if how == 1:
        del lines[place]
    elif how == 2:
        lines.insert(rng.randrange(len(lines)), lines[place])
    elif how == 3:
        lines[place] = " " * rng.randrange(9) + lines[place].lstrip()
    elif how == 4:
        lines[place] = lines[place].partition(":")[0] + ": " + rng.choice(VALUES)
    elif how == 5:
        word = rng.choice(re.findall(r"[^\s,\[\]{}:]+", text))
        return text.replace(word, rng.choice(VALUES), rng.choice((1, -1))).encode("utf-8", "surrogatepass")
    else:
        rng.shuffle(lines)
    return "\n".join(lines).encode("utf-8", "surrogatepass")
