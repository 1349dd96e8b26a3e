"""``plan`` beside what runs hold at most on a device: the code of the device, not that of the CPU, is estimated."""

import pytest

from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.plan import needs_of
from tests.device.runs import DEVICE, run_on
from tests.device.simulated import limited_memory
from tests.federations import make_config

PLENTY = 1 << 40
SEEN = ("num_workers=10", "num_rounds=6")  # every worker has kept its state by then
SMALL = ("data.partition=iid", "cohort_size=4", "num_rounds=3", "batch_size=32", "precision=float32")


@pytest.mark.parametrize(
    "args",
    [
        ("algorithm.name=gradma", "algorithm.memory_size=100", "engine=stacked"),
        ("algorithm.name=gradma_w", "engine=loop", *SEEN),
        ("algorithm.name=moon", "engine=stacked", *SEEN),
        ("algorithm.name=fedmlb", "engine=stacked"),
        ("algorithm.name=mime", "engine=stacked"),
        ("algorithm.name=scaffold", "local_momentum=0.9", "engine=stacked", *SEEN),
        ("algorithm.name=fedavg", "compression.name=topk", "engine=stacked", "num_rounds=9"),
    ],
    ids=" ".join,
)
def test_estimates_are_within_15_percent_of_what_a_device_holds_at_most(args):
    config = make_config(*SMALL, *args, "cohort_chunk=4", workers=100)
    needs = needs_of(config)
    with limited_memory(PLENTY) as memory:
        run_on(DEVICE, config, module=build(config, make_algorithm(config)))
    assert needs.total() == pytest.approx(memory.peak, rel=0.15)
