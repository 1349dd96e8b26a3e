"""What every method asks of a device may not grow unseen: kernels, host reads and host-to-device copies.

The bounds are what was measured (``python -m tests.device.counts``); a change that needs less should lower them and
renew benchmarks/README.md with ``--write``.
"""

from dataclasses import astuple

import pytest

from fl_platform.algorithms import base
from tests.device.counts import MODELS, README, Row, markdown, measure

# method, model | kernels per local step | workers, per round: reads, copies | server step: kernels, reads, copies
# | evaluation: kernels, reads, copies
BOUNDS = """
fedavg    mlp       105     0   6    15   3   1    19   4   0
fedavgm   mlp       105     0   6    17   3   1    19   4   0
feddyn    mlp       109     0   6    24   3   1    38   8   0
fedmlb    mlp       213     0   6    15   3   1    19   4   0
fedmlbm   mlp       213     0   6    17   3   1    19   4   0
fedprox   mlp       108     0   6    15   3   1    19   4   0
fedproxm  mlp       108     0   6    17   3   1    19   4   0
gradma    mlp       394     0   6    48   8   2    19   4   0
gradma_s  mlp       105     0   6    38   5   2    19   4   0
gradma_w  mlp       394     0   6    25   6   1    19   4   0
mifa      mlp       105     0   6    24   3   1    19   4   0
mifam     mlp       105     0   6    26   3   1    19   4   0
mimelite  mlp       108     0  19    20   3   1    19   4   0
moon      mlp       219     0   6    23   3   1    19   4   0
moonm     mlp       219     0   6    25   3   1    19   4   0
scaffold  mlp       107     0   6    23   3   1    19   4   0
fedavg    lenet5    251     0   6    15   3   1    27   4   0
fedavgm   lenet5    251     0   6    17   3   1    27   4   0
feddyn    lenet5    255     0   6    24   3   1    54   8   0
fedmlb    lenet5    744     0   6    15   3   1    27   4   0
fedmlbm   lenet5    744     0   6    17   3   1    27   4   0
fedprox   lenet5    254     0   6    15   3   1    27   4   0
fedproxm  lenet5    254     0   6    17   3   1    27   4   0
gradma    lenet5    804     0   6    48   8   2    27   4   0
gradma_s  lenet5    251     0   6    38   5   2    27   4   0
gradma_w  lenet5    804     0   6    25   6   1    27   4   0
mifa      lenet5    251     0   6    24   3   1    27   4   0
mifam     lenet5    251     0   6    26   3   1    27   4   0
mimelite  lenet5    254     0  19    20   3   1    27   4   0
moon      lenet5    417     0   6    23   3   1    27   4   0
moonm     lenet5    417     0   6    25   3   1    27   4   0
scaffold  lenet5    253     0   6    23   3   1    27   4   0
"""


def bounds() -> list[Row]:
    lines = [line.split() for line in BOUNDS.strip().splitlines()]
    return [Row(method, model, *map(int, numbers)) for method, model, *numbers in lines]


def test_every_method_and_model_has_its_bounds():
    assert {(row.method, row.model) for row in bounds()} == {(name, model) for name in base.names() for model in MODELS}


@pytest.mark.parametrize("bound", bounds(), ids=lambda row: f"{row.method}-{row.model}")
def test_counts_do_not_grow(bound):
    """``measure`` itself raises where reads or copies grow with the number of local steps."""
    found = measure(bound.method, bound.model)
    assert all(a <= b for a, b in zip(astuple(found)[2:], astuple(bound)[2:], strict=True)), found


def test_the_readme_has_the_same_table():
    assert markdown(bounds()) in README.read_text(encoding="utf-8")
