"""Partitioners of flwr-datasets; those that need the package are skipped where it is not installed."""

from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
import torch

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data.partition import make_partition
from fl_platform.data.partitions.flwr import Flwr
from fl_platform.data.samples import Samples
from fl_platform.errors import UserError

is_installed = find_spec("flwr_datasets") is not None
needs_package = pytest.mark.skipif(not is_installed, reason="needs flwr-datasets")

SIZES = [60, 40, 30, 20, 20, 10]
ACCEPTED = {
    "ContinuousPartitioner": {"partition_by": "column_1", "strictness": 0.9},
    "DirichletPartitioner": {"alpha": 1.0, "min_partition_size": 2},
    "DistributionPartitioner": {
        "distribution_array": [[1, 2, 3, 4]] * 3,
        "num_unique_labels_per_partition": 2,
        "preassigned_num_samples_per_label": 1,
    },
    "ExponentialPartitioner": {},
    "GroupedNaturalIdPartitioner": {"group_size": 2},
    "IidPartitioner": {},
    "InnerDirichletPartitioner": {"partition_sizes": SIZES, "alpha": 1.0},
    "LinearPartitioner": {},
    "NaturalIdPartitioner": {"partition_by": "label"},
    "PathologicalPartitioner": {"num_classes_per_partition": 2},
    "ShardPartitioner": {"num_shards_per_partition": 2},
    "SizePartitioner": {"partition_sizes": SIZES},
    "SquarePartitioner": {},
}
PARTS = {"ExponentialPartitioner": 3, "NaturalIdPartitioner": 3, "SquarePartitioner": 4}  # others: 6


def samples() -> Samples:
    """180 rows of a table, three classes, twelve owners."""
    table = np.random.default_rng(0).normal(size=(180, 3)).astype(np.float32)
    return Samples.from_arrays(table, np.arange(180) % 3, np.arange(180) // 15)


def divide(name, arguments, num_workers=6, seed=0, train=None):
    rng = np.random.default_rng(seed)
    return make_partition(Flwr(name, arguments), train or samples(), num_workers, rng)


@needs_package
@pytest.mark.parametrize("name", ACCEPTED)
def test_every_partitioner_divides_samples_and_the_seed_alone_decides(name):
    first, again = (divide(name, ACCEPTED[name], PARTS.get(name, 6)) for _ in range(2))
    assert first.sizes.min() >= 2
    assert len(np.unique(first.indices)) == len(first.indices)
    assert np.array_equal(first.indices, again.indices)
    assert np.array_equal(first.offsets, again.offsets)


@needs_package
def test_all_partitioners_of_the_package_are_tried_or_refused():
    import flwr_datasets.partitioner as package

    from fl_platform.data.partitions.flwr import NOT_OF_SAMPLES

    assert {*ACCEPTED, *NOT_OF_SAMPLES} == set(package.__all__)


@needs_package
def test_parts_are_what_the_partitioner_says():
    natural = divide("NaturalIdPartitioner", {}, num_workers=12)
    assert natural.of(4).tolist() == list(range(60, 75))
    assert divide("SizePartitioner", {"partition_sizes": SIZES}).sizes.tolist() == SIZES
    by_column = divide("ContinuousPartitioner", {"partition_by": "column_1", "strictness": 1.0})
    values = samples().features[:, 1].numpy()
    ends = [(values[by_column.of(i)].min(), values[by_column.of(i)].max()) for i in range(6)]
    assert all(low[1] <= high[0] for low, high in pairwise(ends))


@needs_package
def test_the_run_s_seed_and_a_given_seed():
    arguments = ACCEPTED["DirichletPartitioner"]
    first, other = (divide("DirichletPartitioner", arguments, seed=seed) for seed in (0, 1))
    assert not np.array_equal(first.indices, other.indices)
    first, other = (divide("DirichletPartitioner", arguments | {"seed": 3}, seed=seed) for seed in (0, 1))
    assert np.array_equal(first.indices, other.indices)


@needs_package
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Dirichlet", {}, "partitioner=Dirichlet is not known; .*did you mean 'DirichletPartitioner'"),
        ("VerticalEvenPartitioner", {}, "cannot be used: it divides columns"),
        ("DirichletPartitioner", {}, "DirichletPartitioner needs data.partition_options.arguments.alpha=..."),
        ("DirichletPartitioner", {"alpa": 1}, "arguments.alpa=1: .* has no such argument; .*did you mean 'alpha'"),
        ("DirichletPartitioner", {"alpha": -1}, "does not divide these samples: ValueError"),
        ("IidPartitioner", {"num_partitions": 3}, "arguments.num_partitions=3: give num_workers instead"),
        ("SizePartitioner", {"partition_sizes": [90, 90]}, "makes 2 parts, and num_workers=6; give num_workers=2"),
        ("PathologicalPartitioner", {"num_classes_per_partition": 2, "partition_by": "colour"}, "no such column"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, arguments, message):
    with pytest.raises(UserError, match=message) as raised:
        divide(name, arguments)
    assert "\n" not in str(raised.value)


@needs_package
def test_samples_without_owners_have_no_natural_ids():
    images = Samples(torch.zeros(40, 1, 2, 2, dtype=torch.uint8), torch.arange(40) % 2)
    with pytest.raises(UserError, match=r"partition_by=owner: there is no such column; there are sample, label$"):
        divide("NaturalIdPartitioner", {}, train=images)


@pytest.mark.skipif(is_installed, reason="flwr-datasets is installed")
def test_without_the_package_one_sentence_says_what_to_install():
    with pytest.raises(UserError, match=r"data.partition=flwr needs the package flwr-datasets; install it with pip"):
        divide("IidPartitioner", {})


def test_arguments_enter_the_run_id_and_the_group_s_name():
    options = "data.partition_options"
    base = ["data.partition=flwr", f"{options}.partitioner=DirichletPartitioner"]
    half, one = (resolve(compose([*base, f"{options}.arguments.alpha={alpha}"])) for alpha in (0.5, 1.0))
    assert half.run_id != one.run_id
    assert half.config.data.partition_options == {"partitioner": "DirichletPartitioner", "arguments": {"alpha": 0.5}}
    assert "flwrDirichletPartitioneralpha=0.5" in half.group
