"""``doctor --device`` on the simulated device: methods beside the CPU, times with and without graphs."""

import pytest
from lightning.pytorch.strategies import SingleDeviceStrategy

from fl_platform.federation import device_check, launch
from fl_platform.kernels.graphs import CAPTURES
from tests.device import simulated
from tests.device.runs import DEVICE, SimulatedAccelerator

CPU_ARGUMENTS = launch.device_arguments


@pytest.fixture
def reachable(monkeypatch):
    """The simulated device under its name, as CUDA is under ``cuda``."""

    def arguments(device):
        if device != simulated.NAME:
            return CPU_ARGUMENTS(device)
        return {"strategy": SingleDeviceStrategy(device=DEVICE, accelerator=SimulatedAccelerator())}

    monkeypatch.setattr(launch, "device_arguments", arguments)
    monkeypatch.setattr(device_check, "check_device", lambda *args: None)
    monkeypatch.setitem(CAPTURES, simulated.NAME, simulated.capture)


def test_the_report_of_a_second_device(reachable):
    report = device_check.examine_device(simulated.NAME, ["fedavg", "gradma"])
    assert report.is_ok
    assert [(a.algorithm, a.engine) for a in report.agreements] == [
        (name, engine) for name in ("fedavg", "gradma") for engine in ("loop", "stacked")
    ]
    assert [t.graphs for t in report.timings] == [False] * 6 + [True]
    assert "| stacked | float32 | yes |" in report.markdown()
