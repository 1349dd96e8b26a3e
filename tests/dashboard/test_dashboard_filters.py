"""The filter of the dashboard: what it finds, and what it says about a bad one."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.dashboard.filters import Term, parse, select
from fl_platform.dashboard.quantities import Catalogue, as_number
from fl_platform.dashboard.store import State
from fl_platform.errors import UserError
from fl_platform.reporting.shown import ShownRun, row, shown
from tests.synthetic_logs import make_log

RUNS = {
    run.log.run_id: run
    for run in (
        shown(make_log("fedavg", 0, run_id="a", local_lr=0.1, model__width=None, model__norm="none")),
        shown(make_log("fedavg", 2, run_id="b", local_lr=0.03, model__width=16, level=0.95, speed=1.0)),
        shown(make_log("gradma", 1, run_id="c", local_lr=0.1, algorithm__memory_size=50, note="two args, one comma")),
        shown(make_log("gradma_s", 2, run_id="d", status="crashed", omega=0.01, algorithm__memory_size=100)),
    )
}


def found(text: str) -> str:
    """The ids of the runs that a filter leaves."""
    catalogue = Catalogue(State(1, RUNS), lambda run_id, run: row(run))
    chosen: Sequence[ShownRun] = select(parse(text), catalogue, RUNS.values())
    return "".join(run.log.run_id for run in chosen)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", "abcd"),
        ("algorithm.name=gradma", "c"),
        ("algorithm=GradMA", "c"),
        ("algorithm=gradma_s", "d"),
        ("algorithm=gradma*", "cd"),
        ("algorithm=fedavg,gradma", "abc"),
        ("local_lr=0.1", "ac"),
        ("local_lr=1e-1", "ac"),
        ("local_lr == 0.1", "ac"),
        ("local_lr >= 0.05", "ac"),
        ("local_lr<0.1", "b"),
        ("seed!=2", "ac"),
        ("-seed=2", "ac"),
        ("-seed!=2", "bd"),
        ("seed!=0,2", "c"),
        ("memory_size>10", "cd"),
        ("memory_size!=50", "abd"),
        ("model.width=null", "a"),
        ("width=none", "a"),
        ("norm=none", "a"),
        ("width=16", "b"),
        ('note="two args, one comma"', "c"),
        ("note~args", "c"),
        ("status=crashed", "d"),
        ('scenario="MNIST, ω=0.1, S=10"', "abc"),
        ("dirichlet_omega<=0.01", "d"),
        ("top>90%", "b"),
        ("test/top_accuracy>0.9", "b"),
        ("gradma seed=1", "c"),
        ("GRADMA", "cd"),
        ("-gradma", "ab"),
        ('"MNIST, ω"', "abcd"),
        ("mnist local_lr=0.1 seed<1", "a"),
        ("id=a,c", "ac"),
        ('"id"="a"', "a"),
        ("nothing-like-it", ""),
    ],
)
def test_a_filter_finds(text: str, ids: str) -> None:
    assert found(text) == ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("local_lr>=", "'local_lr>=' has no value after it; write local_lr>=value"),
        ("seed=,1", "'seed=' has no value after it"),
        ("seed=1,", "'seed=' has no value after it"),
        ("local_lr>=high", "local_lr>=high needs a number after >="),
        ("seed>1,2", "seed> takes one number, not 2 values"),
        ("=3", "'=3' has no key before it; write key=value"),
        ('note="two args', "the quote before 'two args' is not closed"),
        ("locl_lr=1", "no run has a key or figure 'locl_lr'; did you mean 'local_lr'?"),
        ("memory_sise=1", "did you mean 'memory_size'?"),
        ("name=x partition=x", None),
        ("x" * 400_001, "the filter has 400001 characters"),
        ("top>90", "top is a share from 0 to 1: write top>90% for per cent"),
        ("gradma or moon", "'or' does not join terms, all of which must hold; any of several values is key=one,other"),
        ("gradma|moon", "'gradma|moon' does not join terms"),
        ("omega=0.1", "no run has a key or figure 'omega'; did you mean data.dirichlet_omega?"),
    ],
)
def test_a_bad_filter_says_what_is_wrong(text: str, message: str | None) -> None:
    if message is None:
        assert found(text) == ""
        return
    with pytest.raises(UserError) as caught:
        found(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_end_of_two_keys_is_ambiguous() -> None:
    runs = {"a": shown(make_log(run_id="a", one__rate=1, two__rate=2))}
    catalogue = Catalogue(State(1, runs), lambda run_id, run: row(run))
    with pytest.raises(UserError, match=r"rate is the end of several keys; write one.rate or two.rate"):
        catalogue.resolve("rate")


def test_terms() -> None:
    assert parse(r'-a.b != "x \" \\",y  word') == [Term("a.b", "!=", ('x " \\', "y"), True), Term(None, "~", ("word",))]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    said = ""
    try:
        found(text)
    except UserError as error:
        said = str(error)
    assert "\n" not in said


@given(st.text(min_size=1, max_size=30).filter(str.strip))
def test_what_is_quoted_is_taken_as_it_is(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    assert parse(f'id="{escaped}"') == [Term("id", "=", (text,))]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0.1", 0.1),
        ("1e-3", 0.001),
        ("-2", -2),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("a", None),
        ("", None),
        (3, 3.0),
    ],
)
def test_numbers_in_text(value: object, number: float | None) -> None:
    assert as_number(value) == number
