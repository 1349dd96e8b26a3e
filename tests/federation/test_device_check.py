"""``doctor --device``: methods on a device beside the CPU."""

import json
from dataclasses import replace

import pytest

from fl_platform.cli.doctor import main
from fl_platform.errors import UserError
from fl_platform.federation.device_check import Agreement, DeviceReport, Timing, distance, examine_device, trained


def test_the_cpu_agrees_with_itself():
    report = examine_device("cpu", ["fedavg", "gradma"])
    assert report.is_ok
    assert [(a.algorithm, a.engine, a.repeats) for a in report.agreements] == [
        (name, engine, repeats)
        for name, repeats in (("fedavg", None), ("gradma", None), ("fedavg", True))
        for engine in ("loop", "stacked")
    ]
    assert all(0 < a.device == a.cpu < 1e-3 for a in report.agreements)  # round-off: what is compared is not chaotic
    assert len({a.cpu for a in report.agreements}) == 6  # the engines compute differently, and that is seen
    assert {(t.engine, t.precision) for t in report.timings} == {
        (engine, precision) for engine in ("loop", "stacked") for precision in ("float32", "float64", "bf16-mixed")
    }
    assert all(t.seconds > 0 for t in report.timings)
    assert json.loads(json.dumps(report.as_dict()))["ok"] is True


@pytest.mark.parametrize("name", ["fedavg", "gradma"])
def test_a_device_that_computes_in_fewer_digits_is_seen(name):
    """As one would whose matrix products are silently rounded to bfloat16."""
    args = (f"algorithm.name={name}", "device=cpu", "engine=stacked")
    exact, here, rounded = (trained(*args, f"precision={p}") for p in ("float64", "float32", "bf16-mixed"))
    assert not Agreement(name, "stacked", distance(rounded, exact), distance(here, exact)).is_ok


def test_a_device_that_is_far_off_is_seen():
    good = Agreement("fedavg", "stacked", device=1e-6, cpu=1e-6, repeats=True)
    bad = Agreement("fedavg", "loop", device=1e-2, cpu=1e-6)
    report = DeviceReport(
        "cuda", "a card", {"torch": "2"}, [good, bad], [Timing("loop", "float32", 0.001, 5_000_000)], minutes=0.5
    )
    assert not report.is_ok
    rows = [line for line in report.markdown().splitlines() if line.startswith("| fedavg")]
    assert rows == [
        "| fedavg | mlp | loop | 1.0e-02 | 1.0e-06 |  | NO |",
        "| fedavg | mlp | stacked | 1.0e-06 | 1.0e-06 | yes | yes |",
    ]
    assert not replace(good, repeats=False).is_ok
    assert "| loop | float32 | no | 1.00 | 5.0 |" in report.markdown()


@pytest.mark.parametrize("device", ["cuda:99", "tpu"])
def test_a_device_that_is_not_there(device):
    with pytest.raises(UserError, match=f"--device={device}"):
        main(["--device", device])


def test_keys_are_refused_with_a_device():
    with pytest.raises(UserError, match="leave keys out"):
        main(["--device", "cpu", "data.name=mnist"])
