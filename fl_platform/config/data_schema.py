"""The options of ``data``: which data set, and how its training samples are divided among workers."""

from dataclasses import dataclass
from typing import Any

from fl_platform.config.options import option


@dataclass
class DataConfig:
    """Data set, its partition among workers, and what is held out."""

    name: str = option("digits", "data set; see `list datasets`")
    root: str | None = option(None, "where data sets lie; null: $FL_DATA_ROOT, then the user cache", identity=False)
    partition: str | None = option(
        None, "how training data is divided among workers; null: the data set's own; see `list partitions`"
    )
    dirichlet_omega: float = option(
        0.1,
        "Dirichlet concentration; smaller is more skewed",
        above=0,
        grid=(1.0, 0.1, 0.01),
        when=("data.partition", "dirichlet", "dirichlet_workers"),
    )
    shards_per_worker: int = option(
        2, "label-sorted shards each worker gets", at_least=1, when=("data.partition", "shards")
    )
    classes_per_worker: int = option(2, "classes each worker has", at_least=1, when=("data.partition", "classes"))
    quantity_sizes: str = option(
        "lognormal",
        "how the workers' numbers of samples are distributed",
        choices=("lognormal", "power_law"),
        when=("data.partition", "quantity"),
    )
    quantity_spread: float = option(
        1.0,
        "deviation of the logarithm of log-normal sizes, or exponent s of sizes ~ rank^-s; 0: equal sizes",
        at_least=0,
        at_most=100,
        when=("data.partition", "quantity"),
    )
    partition_file: str | None = option(
        None,
        "a partition that `data partition --save` wrote (.json, .parquet)",
        when=("data.partition", "file"),
        identity=False,
    )
    partition_sha256: str | None = option(
        None,
        "digest of what data.partition_file says, filled in; a file with another is refused",
        when=("data.partition", "file"),
    )
    partition_options: dict[str, Any] = option({}, "parameters of a partition that a plugin adds")
    worker_test_fraction: float = option(
        0.0,
        "share of every worker's data that it does not train on, to score models there (evaluation.workers)",
        at_least=0,
        below=1,
        identity="changed",
    )
    validation_fraction: float = option(
        0.0, "share of the training data held out and evaluated instead of the test set", at_least=0, below=1
    )
