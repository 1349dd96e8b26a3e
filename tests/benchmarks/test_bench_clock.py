"""Clocks: what is measured in turns, by part, and undone afterwards."""

import time

import pytest

from benchmarks.clock import Meter, Ratio, Seconds, in_turns, median


class Worker:
    def outer(self) -> int:
        busy(0.004)
        return self.inner() + 1

    def inner(self) -> int:
        busy(0.008)
        return 1


def busy(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_parts_are_without_the_parts_they_call():
    worker, meter, seen = Worker(), Meter(), []
    meter.wrap(worker, "outer", "outside")
    meter.wrap(worker, "inner", "inside", seen.append)
    assert worker.outer() == 2
    assert seen == [1]
    assert meter.spent["outside"].cpu >= 0.004
    assert meter.spent["inside"].cpu >= 0.008
    assert meter.spent["outside"].cpu < meter.spent["inside"].cpu


def test_unwrapping_leaves_no_trace():
    worker, meter = Worker(), Meter()
    meter.wrap(worker, "outer", "a")
    meter.wrap(worker, "outer", "b")
    meter.unwrap()
    assert vars(worker) == {}
    assert worker.outer() == 2
    assert meter.spent == {}


def test_an_exception_ends_its_part():
    meter = Meter()
    with pytest.raises(KeyError), meter.part("failing"):
        raise KeyError
    with meter.part("after"):
        busy(0.001)
    assert list(meter.spent) == ["failing", "after"]


def test_works_take_turns():
    order: list[str] = []
    times = in_turns(3, lambda: order.append("a"), lambda: order.append("b"))
    assert order == ["a", "b"] * 4
    assert len(times) == 2


def test_times_add_and_divide():
    slow, fast = Seconds(4.0, 3.0), Seconds(2.0, 1.0)
    assert slow / fast == Ratio(2.0, 3.0)
    assert slow / Seconds(1.0, 0.0) == Ratio(4.0, None)
    assert slow - fast + fast * 2 == Seconds(6.0, 4.0)
    assert median([slow, fast, Seconds(9.0, 0.0)]) == Seconds(4.0, 1.0)
