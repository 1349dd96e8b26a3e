"""What every method of the paper asks of a device may not grow unseen: kernels, host reads and host-to-device copies.

The bounds are what was measured (``python -m tests.device.counts``); a change that needs less should lower them and
renew benchmarks/README.md with ``--write``.
"""

from dataclasses import astuple

import pytest

from fl_platform.paper.methods import METHODS
from tests.device.counts import MODELS, README, Row, markdown, measure

# method, model | kernels per local step | workers, per round: reads, copies | server step: kernels, reads, copies
# | evaluation: kernels, reads, copies
BOUNDS = """
fedavg    mlp       100     0   2    18   2   1    24   1   2
fedavgm   mlp       100     0   2    20   2   1    24   1   2
feddyn    mlp       104     0   2    27   2   1    42   2   2
fedmlb    mlp       208     0   2    18   2   1    24   1   2
fedmlbm   mlp       208     0   2    20   2   1    24   1   2
fedprox   mlp       103     0   2    18   2   1    24   1   2
fedproxm  mlp       103     0   2    20   2   1    24   1   2
gradma    mlp       380     0   2    51   4   2    24   1   2
gradma_s  mlp       100     0   2    41   4   2    24   1   2
gradma_w  mlp       380     0   2    28   2   1    24   1   2
mifa      mlp       100     0   2    27   2   1    24   1   2
mifam     mlp       100     0   2    29   2   1    24   1   2
mimelite  mlp       103     0   3    23   2   1    24   1   2
moon      mlp       214     0   2    26   2   1    24   1   2
moonm     mlp       214     0   2    28   2   1    24   1   2
scaffold  mlp       102     0   2    26   2   1    24   1   2
fedavg    lenet5    246     0   2    18   2   1    32   1   2
fedavgm   lenet5    246     0   2    20   2   1    32   1   2
feddyn    lenet5    250     0   2    27   2   1    58   2   2
fedmlb    lenet5    739     0   2    18   2   1    32   1   2
fedmlbm   lenet5    739     0   2    20   2   1    32   1   2
fedprox   lenet5    249     0   2    18   2   1    32   1   2
fedproxm  lenet5    249     0   2    20   2   1    32   1   2
gradma    lenet5    790     0   2    51   4   2    32   1   2
gradma_s  lenet5    246     0   2    41   4   2    32   1   2
gradma_w  lenet5    790     0   2    28   2   1    32   1   2
mifa      lenet5    246     0   2    27   2   1    32   1   2
mifam     lenet5    246     0   2    29   2   1    32   1   2
mimelite  lenet5    249     0   3    23   2   1    32   1   2
moon      lenet5    412     0   2    26   2   1    32   1   2
moonm     lenet5    412     0   2    28   2   1    32   1   2
scaffold  lenet5    248     0   2    26   2   1    32   1   2
"""


def bounds() -> list[Row]:
    lines = [line.split() for line in BOUNDS.strip().splitlines()]
    return [Row(method, model, *map(int, numbers)) for method, model, *numbers in lines]


def test_every_method_of_the_paper_has_its_bounds_on_every_model():
    """What holds for all others is in test_runs.py."""
    assert {(row.method, row.model) for row in bounds()} == {(name, model) for name in METHODS for model in MODELS}


@pytest.mark.parametrize("bound", bounds(), ids=lambda row: f"{row.method}-{row.model}")
def test_counts_do_not_grow(bound):
    """``measure`` itself raises where reads or copies grow with the number of local steps."""
    found = measure(bound.method, bound.model)
    assert all(a <= b for a, b in zip(astuple(found)[2:], astuple(bound)[2:], strict=True)), found


def test_the_readme_has_the_same_table():
    assert markdown(bounds()) in README.read_text(encoding="utf-8")
