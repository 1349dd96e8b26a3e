"""Which samples workers are scored on, besides the test set of all."""

from typing import NamedTuple

from fl_platform.config.schema import Config
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.data.worker_tests import owner_tests, split_worker_tests
from fl_platform.errors import UserError


class WorkerTests(NamedTuple):
    """Samples of each worker that it is scored on."""

    of_workers: Partition | None  # None where workers are not scored
    are_for_training: bool  # places in the training set, not in the test set


def assign_tests(
    config: Config, partition: Partition, train_set: Samples, test_set: Samples
) -> tuple[Partition, WorkerTests]:
    """What workers train on, and what they are scored on: held out by each, of its owner, or that it trains on."""
    tests = None
    fraction = config.data.worker_test_fraction
    if fraction:
        partition, tests = split_worker_tests(partition, train_set.labels.numpy(), fraction, config.seed)
    if config.evaluation.workers and config.evaluation.worker_samples == "training":
        return partition, WorkerTests(partition, are_for_training=True)
    if config.evaluation.workers and not fraction:
        tests = owner_tests(partition, train_set, test_set)
    return partition, WorkerTests(tests, are_for_training=bool(fraction))


def with_tests(tests: Partition | None, config: Config) -> Partition:
    """The tests of workers; UserError where no worker has any."""
    fraction = config.data.worker_test_fraction
    if tests is not None and len(tests.indices):
        return tests
    if fraction:
        raise UserError(
            f"data.worker_test_fraction={fraction:g} leaves no worker a test sample: a worker keeps two for training; "
            "take a larger share, fewer workers or a partition with less skew"
        )
    raise UserError(
        f"evaluation.workers=true: no worker of data.partition={config.data.partition} has the samples of one owner "
        f"who has test samples in data.name={config.data.name}; "
        "give the share of its data that each worker holds out, such as data.worker_test_fraction=0.2"
    )
