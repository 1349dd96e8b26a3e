"""Two processes with a simulated device each give what one process gives on a CPU."""

import subprocess
import sys

import pytest
import torch

from fl_platform.algorithms import base
from tests.device.runs import DEVICE
from tests.device.two_ranks import cases, run

ROUND_OFF = 2.0**-52
SCRIPT = "import sys, pathlib, fl_platform; from tests.device.two_ranks import main"  # in this order


def test_two_ranks_of_every_method_equal_the_cpu(tmp_path):
    methods = base.names()
    command = [sys.executable, "-W", "ignore", "-c", f"{SCRIPT}; main(pathlib.Path(sys.argv[1]), sys.argv[2:])"]
    done = subprocess.run([*command, str(tmp_path), *methods], stderr=subprocess.PIPE, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-6000:]
    found = torch.load(tmp_path / "two_ranks.pt", weights_only=True)
    for name, args in cases(methods).items():
        params, buffers, kernels = found[name]
        here = run(args)
        assert kernels > 50, name
        for a, b in ((params, here.params), (buffers, here.module.global_buffers)):
            torch.testing.assert_close(
                a, b, rtol=0, atol=1000 * ROUND_OFF, msg=lambda text, name=name: f"{name}: {text}"
            )


def test_a_collective_refuses_tensors_of_the_host_and_objects_with_tensors(tmp_path):
    """Alone in a group of one: what NCCL would refuse, or restore on the wrong device."""
    from tests.device import process_group, simulated  # noqa: F401

    torch.distributed.init_process_group(
        simulated.NAME, init_method=f"file://{tmp_path / 'alone'}", rank=0, world_size=1
    )
    try:
        torch.distributed.all_reduce(torch.ones(3, device=DEVICE))
        with pytest.raises(RuntimeError, match="was given a tensor of cpu"):
            torch.distributed.all_reduce(torch.ones(3))
        with pytest.raises(RuntimeError, match="sender's device"):
            torch.distributed.all_gather_object([None], {"a": torch.ones(3, device=DEVICE)})
    finally:
        torch.distributed.destroy_process_group()
