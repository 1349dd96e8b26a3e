"""The work that all peers do, written once: samples, the partition over workers, and how much each does per round."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

import benchmarks.synthetic  # noqa: F401 - registers the random data sets
from benchmarks.peers.programs.common import Settings
from fl_platform.config.compose import compose
from fl_platform.config.partition_file import Split, labels_sha256, write_split
from fl_platform.config.resolve import resolve
from fl_platform.data import datasets
from fl_platform.data.prepare import partition_of, prepare

WORKERS, COHORT, STEPS, BATCH, RATE, SEED = 100, 10, 5, 64, 0.01, 0
WORKLOADS = ("w1", "w2")


def settings_of(workload: str, *, small: bool = False) -> Settings:
    """W1: ``mlp`` on MNIST (random bytes of its shape where it is not found). W2: ``lenet5`` on images of CIFAR-10's
    shape. ``small``: few samples, for tests."""
    if workload == "w1":
        network, data = "mlp", "mnist" if datasets.find("mnist") and not small else "random_mnist"
    else:
        network, data = "lenet5", "random_cifar10_small" if small else "random_cifar10"
    workers, cohort, steps, batch = (10, 2, 2, 8) if small else (WORKERS, COHORT, STEPS, BATCH)
    return Settings(network, data, workers, cohort, steps, batch, RATE, SEED)


def write(settings: Settings, folder: Path) -> Path:
    """Write the files of a workload into a folder, and return it.

    Every worker has ``steps`` batches of samples, with the classes that ``data.partition=dirichlet_workers`` at
    omega=1 gives it, so that an epoch is the same work in every program.
    """
    keys = [f"data.name={settings.data}", "data.partition=dirichlet_workers", "data.dirichlet_omega=1.0"]
    keys += [f"num_workers={settings.num_workers}", f"seed={settings.seed}", f"batch_size={settings.batch}"]
    config = resolve(compose(["plugins=[benchmarks.synthetic]", *keys])).config
    train, test = prepare(config)
    partition = partition_of(config, train)
    count = settings.steps * settings.batch
    chosen = np.stack([partition.of(worker)[:count] for worker in range(settings.num_workers)])

    folder.mkdir(parents=True, exist_ok=True)
    dataset, labels = datasets.get(settings.data), train.labels.numpy()
    np.savez(
        folder / "samples.npz",
        train_x=np.asarray(train.features),
        train_y=labels,
        test_x=np.asarray(test.features),
        test_y=test.labels.numpy(),
        mean=np.asarray(dataset.mean),
        std=np.asarray(dataset.std),
        split=chosen,
    )
    offsets = np.arange(settings.num_workers + 1) * count
    about = f"benchmark against peers, {settings.steps} batches of {settings.batch} for each worker"
    write_split(Split(settings.data, about, labels_sha256(labels), chosen.ravel(), offsets), folder / "split.json")
    (folder / "settings.json").write_text(json.dumps(asdict(settings)), encoding="utf-8")
    return folder
