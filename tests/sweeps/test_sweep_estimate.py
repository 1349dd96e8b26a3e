"""How long a sweep is said to take."""

import time

import pytest

from fl_platform.runs import metrics
from fl_platform.sweeps.ledger import Entry
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.status import estimate

DONE = Entry(
    number=0,
    state=TrialState.FINISHED,
    params={},
    run_id="a",
    attempt=1,
    launcher=None,
    host="",
    pid=0,
    time=1000.0,
    began=940.0,
    failures=0,
    data={"summary": {metrics.TOTAL_SECONDS: 50.0}},
)


def test_the_rest_takes_as_long_as_what_was_done():
    assert estimate([DONE], left=2, running=0) == pytest.approx(120)
    assert estimate([], left=2, running=0) is None
    running = DONE._replace(number=1, state=TrialState.STARTED, began=time.time() - 20, data={})
    assert estimate([DONE, running], left=1, running=1) == pytest.approx(100, abs=5)


@pytest.mark.parametrize("seconds", [0.01, 10.0])
def test_a_run_that_was_there_counts_with_its_own_time(seconds):
    taken = DONE._replace(began=DONE.time - seconds)
    assert estimate([taken], left=2, running=0) == pytest.approx(100)
    unknown = taken._replace(data={})
    assert estimate([unknown], left=2, running=0) == pytest.approx(2 * seconds)
