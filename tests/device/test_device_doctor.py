"""``doctor --device`` on the simulated device: methods beside the CPU, times with and without graphs."""

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from fl_platform import LocalStep, Stack
from fl_platform.algorithms.fedprox import FedProx
from fl_platform.federation import device_check, trainer
from fl_platform.kernels.graphs import CAPTURES
from tests.device import simulated
from tests.device.runs import DEVICE, SimulatedAccelerator

CPU_ARGUMENTS = trainer.device_arguments


@pytest.fixture
def reachable(monkeypatch):
    """The simulated device under its name, as CUDA is under ``cuda``."""

    def arguments(device):
        if device != simulated.NAME:
            return CPU_ARGUMENTS(device)
        return {"strategy": SingleDeviceStrategy(device=DEVICE, accelerator=SimulatedAccelerator())}

    monkeypatch.setattr(trainer, "device_arguments", arguments)
    monkeypatch.setattr(device_check, "check_device", lambda *args: None)
    monkeypatch.setitem(CAPTURES, simulated.NAME, simulated.capture)
    monkeypatch.setattr(device_check, "TIMED", ("num_rounds=2",))
    monkeypatch.setattr(device_check, "CONVOLUTIONS", (*device_check.CONVOLUTIONS, "local_steps=1", "num_rounds=1"))


def test_the_report_of_a_second_device(reachable):
    said = []
    names = ("local_only", "gradma")  # of the first the server's model does not move
    report = device_check.examine_device(simulated.NAME, list(names), said.append)
    assert report.is_ok
    assert [line.partition(" (")[0] for line in said] == [
        "[1/3] local_only: agrees",
        "[2/3] gradma: agrees",
        "[3/3] fedavg with convolutions: agrees",
        "times of 7 combinations of engine, precision and graphs",
    ]
    assert [(a.algorithm, a.model, a.engine, a.repeats) for a in report.agreements] == [
        (*case, engine, case[1] == "resnet20" or None)
        for case in (("local_only", "mlp"), ("gradma", "mlp"), ("fedavg", "resnet20"))
        for engine in ("loop", "stacked")
    ]
    assert [t.graphs for t in report.timings] == [False] * 6 + [True]
    assert "| stacked | float32 | yes |" in report.markdown()


def test_a_method_that_fails_on_the_device_is_reported_and_the_others_go_on(reachable, monkeypatch):
    def stray(self: FedProx, step: LocalStep) -> Stack:
        return step.gradient + torch.zeros(step.gradient.shape[1])  # on the host

    monkeypatch.setattr(FedProx, "local_direction", stray)
    monkeypatch.setattr(device_check, "timed", lambda *args, **how: device_check.Timing("loop", "float32", 0.1, None))
    said: list[str] = []
    report = device_check.examine_device(simulated.NAME, ["fedprox", "fedavg"], said.append)
    assert not report.is_ok
    assert [a.is_ok for a in report.agreements] == [False, False, True, True, True, True]
    assert "DOES NOT AGREE" in said[0]
    assert "expected all tensors to be on the same device" in report.markdown()
