"""``data``: find, fetch and inspect data."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_platform.cli.parser import Parser
from fl_platform.config.compose import compose
from fl_platform.config.partitions import partition_text
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import Config

SHOWN_WORKERS = 200
SHOWN_CLASSES = 10
BINS, BAR = 10, 40
"""Bins of the printed histogram, and characters of its longest bar."""


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(prog="fl_platform data", description="Find, fetch and inspect data.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="list | get | partition")

    listing = actions.add_parser("list", help="which data sets are on this machine, where, and how large")
    listing.add_argument("--root", help="look here only; default: $FL_DATA_ROOT, then the user cache")

    getting = actions.add_parser("get", help="fetch and verify a data set")
    getting.add_argument("name", help="a name from `data list`")
    getting.add_argument("--root", help="where to put it; else $FL_DATA_ROOT, else the user cache")

    dealing = actions.add_parser(
        "partition",
        help="show how training data is distributed over workers",
        description="Print and draw what each worker owns under a configuration, exactly as in a run with it.",
        epilog="example: fl_platform data partition data.name=mnist data.dirichlet_omega=0.01 --save split.json",
    )
    dealing.add_argument(
        "keys", nargs="*", metavar="key=value", help="see `fl_platform config`; such as num_workers=50"
    )
    dealing.add_argument(
        "--out", type=Path, metavar="FILE.png", help="where the picture goes; default: partition-<data set>.png"
    )
    dealing.add_argument(
        "--save", type=Path, metavar="FILE", help="write the partition (.json, .parquet) for data.partition_file=FILE"
    )

    options = parser.parse_args(args)
    if options.action == "list":
        return list_datasets(options.root)
    if options.action == "get":
        return get_dataset(options.name, options.root)
    keys = ["cohort_size=1", *options.keys]  # no cohort is drawn: any number of workers will do
    return show_partition(resolve(compose(keys)).config, options.out, options.save)


def list_datasets(root: str | None) -> int:
    """Print every data set and where it is, or how to get it."""
    from fl_platform.data import datasets, fetch
    from fl_platform.data.locations import roots

    for name in datasets.names():
        dataset = datasets.get(name)
        folder = datasets.find(name, root)
        if folder is not None:
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            where = f"{folder} ({size / 1e6:.1f} MB)"
        elif name in fetch.SOURCES:
            where = f"missing; `{datasets.get_command(name)}`"
        else:
            places = " or ".join(str(roots(root)[0] / end) for end in dataset.folders)
            where = f"missing; put its published files in {places}" if places else "built in"
        print(f"{name:14} {dataset.description}\n{'':14} {where}")
        if dataset.licence:
            print(f"{'':14} licence: {dataset.licence}")
    return 0


def get_dataset(name: str, root: str | None) -> int:
    """Fetch and verify a data set; raises ``UserError`` if that fails."""
    from fl_platform.data.fetch import fetch

    fetch(name, root)
    return 0


def show_partition(config: Config, out: Path | None, save: Path | None) -> int:
    """Print and draw the partition of a resolved configuration, and write it to ``save`` if given."""
    from fl_platform.config.partition_file import Split, check_suffix, labels_sha256, write_split
    from fl_platform.data import datasets
    from fl_platform.data.bubbles import draw_partition
    from fl_platform.data.prepare import partition_of, prepare

    if save is not None:
        check_suffix(save, f"--save {save}")
    dataset = datasets.get(config.data.name)
    train, _ = prepare(config)
    partition = partition_of(config, train)
    counts = partition.class_counts(train.labels, dataset.num_classes)
    title = describe(config)
    print(title)
    print_workers(counts)
    print_histogram(partition.sizes)
    print_summary(counts, config.batch_size)
    out = out or Path(f"partition-{config.data.name}.png")
    draw_partition(counts, out, title, SHOWN_WORKERS)
    print(f"picture: {out}")
    if save is not None:
        labels = train.labels.numpy()
        split = Split(config.data.name, title, labels_sha256(labels), partition.indices, partition.offsets)
        write_split(split, save)
        print(f"saved: {save}; use it with data.partition_file={save} (sha256 {split.sha256[:12]})")
    return 0


def describe(config: Config) -> str:
    """One line that names data set, partition, number of workers and seed."""
    how = partition_text(vars(config.data).get)
    return f"{config.data.name}, {how}, {config.num_workers} workers, seed {config.seed}"


def print_histogram(sizes: NDArray[np.int64]) -> None:
    """Print how many workers have how many samples, in bins of equal width."""
    found = np.unique(sizes)
    width = -(-(found[-1] - found[0] + 1) // BINS)
    edges = np.arange(found[0], found[-1] + width + 1, width)
    counts, _ = np.histogram(sizes, edges)
    print("samples of a worker: number of workers")
    for count, low in zip(counts, edges[:-1], strict=True):
        span = f"{low}" if width == 1 else f"{low} to {low + width - 1}"
        print(f"{span:>18} {count:6} {'█' * -(-BAR * count // counts.max())}".rstrip())


def print_workers(counts: NDArray[np.int64]) -> None:
    """Print per worker the number of samples and classes, and the largest classes with their counts."""
    print(f"{'worker':>7} {'samples':>8} {'classes':>8}  class:samples, largest first")
    for worker, row in enumerate(counts[:SHOWN_WORKERS]):
        order = np.argsort(-row, kind="stable")[: np.count_nonzero(row)]
        cells = " ".join(f"{label}:{row[label]}" for label in order[:SHOWN_CLASSES])
        more = f" and {len(order) - SHOWN_CLASSES} more" if len(order) > SHOWN_CLASSES else ""
        print(f"{worker:7} {row.sum():8} {len(order):8}  {cells}{more}")
    if len(counts) > SHOWN_WORKERS:
        print(f"{'...':>7} and {len(counts) - SHOWN_WORKERS} more workers")


def print_summary(counts: NDArray[np.int64], batch_size: int) -> None:
    """Print a summary of the whole partition."""
    sizes = counts.sum(axis=1)
    shares = sizes / sizes.sum()
    for name, value in {
        "samples": f"{sizes.sum()}",
        "samples per worker": f"median {np.median(sizes):g}, smallest {sizes.min()}, largest {sizes.max()}",
        f"workers with fewer than batch_size={batch_size}": f"{np.mean(sizes < batch_size):.0%}",
        "classes per worker": f"{np.count_nonzero(counts, axis=1).mean():.1f} on average",
        "effective workers, 1 / sum q^2": f"{1 / np.square(shares).sum():.1f}",
    }.items():
        print(f"{name}: {value}")
