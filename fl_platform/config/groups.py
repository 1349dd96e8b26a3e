"""The groups of options below ``Config``, each a dataclass: what they are called, their defaults and bounds."""

from dataclasses import dataclass
from typing import Any

from fl_platform.config.options import option
from fl_platform.config.targets import FURTHER_METRICS


@dataclass
class ModelConfig:
    """Architecture."""

    name: str | None = option(None, "architecture or the dotted path of an nn.Module; null: the data set's own")
    norm: str = option("batch", "normalisation layers", choices=("batch", "group", "none"))
    width: int | None = option(
        None, "resnet20: its first stage, 64 (default) or 16; char_gru: its state, 128", at_least=1, at_most=4096
    )
    options: dict[str, Any] = option({}, "keyword arguments for a model given by dotted path")


@dataclass
class AvailabilityConfig:
    """Who answers when sampled."""

    name: str = option("always", "who answers when sampled", choices=("always", "bernoulli", "markov"))
    failure_probability: float = option(
        0.1, "a sampled worker fails to report", at_least=0, at_most=1, when=("availability.name", "bernoulli")
    )
    leave_probability: float = option(
        0.1,
        "an online worker goes offline before a round",
        at_least=0,
        at_most=1,
        when=("availability.name", "markov"),
    )
    return_probability: float = option(
        0.5,
        "an offline worker comes back before a round",
        at_least=0,
        at_most=1,
        when=("availability.name", "markov"),
    )


@dataclass
class WorkConfig:
    """How many local steps a worker does."""

    name: str = option(
        "fixed",
        "steps of a worker per round: all; for stragglers a random part; or what its speed allows",
        choices=("fixed", "uniform", "by_speed"),
        identity="changed",
    )
    straggler_share: float = option(
        0.5,
        "a worker is a straggler of a round with this probability, and then does 1 to all of its steps, each as likely",
        at_least=0,
        at_most=1,
        when=("work.name", "uniform"),
    )
    speed_spread: float = option(
        0.5,
        "standard deviation of the logarithm of workers' speeds; those below the median do fewer steps, in proportion",
        at_least=0,
        at_most=10,
        when=("work.name", "by_speed"),
    )


@dataclass
class EvaluationConfig:
    """What is scored, and when."""

    every: int | None = option(
        None, "rounds between evaluations, starting with the first; null: the data set's own", at_least=1
    )
    targets: list[float | int | str] | None = option(
        None,
        "accuracies whose rounds, bytes and seconds are reported, or bounds such as perplexity<=4.5 and macro_f1>=0.8; "
        "null: the data set's own",
        above=0,
        at_most=1,
    )
    metrics: list[str] = option(
        [], "metrics of the test set beside accuracy and loss", choices=FURTHER_METRICS, identity="changed"
    )
    workers: bool = option(
        False,
        "also score models on every worker's own test samples: data.worker_test_fraction, or its owner's",
        identity="changed",
    )
    workers_every: int | None = option(
        None,
        "rounds between evaluations on workers, starting with the first; null: evaluation.every",
        at_least=1,
        when=("evaluation.workers", True),
    )
    worker_samples: str = option(
        "tests",
        "which samples of a worker it is scored on: its test samples, or those that it trains on",
        choices=("tests", "training"),
        when=("evaluation.workers", True),
        identity="changed",
    )
    each_worker: bool = option(
        False,
        "also log the accuracy of every single worker, from which reports compute forgetting",
        when=("evaluation.workers", True),
        identity="changed",
    )
    finetune_steps: int = option(
        0,
        "score workers also after so many local steps of each from the model it has; 0: not",
        at_least=0,
        at_most=1_000_000,
        when=("evaluation.workers", True),
    )


@dataclass
class TrackingConfig:
    """Weights & Biases and further loggers."""

    mode: str = option("offline", "Weights & Biases mode", choices=("offline", "online", "disabled"), identity=False)
    project: str = option("fl_platform", "W&B project", identity=False)
    entity: str | None = option(None, "W&B entity", identity=False)
    group: str | None = option(
        None, "W&B group; null: method, data, skew, cohort and a hash of all but the seed", identity=False
    )
    tags: list[str] = option([], "W&B tags", identity=False)
    alert: bool = option(False, "send a W&B alert when a run diverges", identity=False)
    media: bool | None = option(
        None, "log the partition as a picture, and tables of classes and workers; null: when online", identity=False
    )
    console: bool | None = option(None, "send what the run prints to W&B; null: when online", identity=False)
    artifacts: str = option(
        "none",
        "a finished run's model as a W&B artifact with its card; best keeps the best model, too",
        choices=("none", "best", "last"),
        identity=False,
    )
    resources_every: float = option(
        5.0,
        "seconds between records of processor, memory and GPU use, which the dashboard shows; 0: none",
        at_least=0,
        identity=False,
    )
    also: list[str] = option(
        [], "loggers beside W&B; each needs its package", choices=("csv", "tensorboard", "mlflow"), identity=False
    )


@dataclass
class CheckpointConfig:
    """What is saved, and what is kept."""

    every: int = option(
        50, "rounds between checkpoints; the end of a run always has one; 0: only the end", at_least=0, identity=False
    )
    keep_best: bool = option(
        False, "also keep the model with the best test (or validation) accuracy, for `export`", identity=False
    )
    keep_finished: bool = option(
        True, "false: a run that has its result drops its checkpoints; of its models keep_best stays", identity=False
    )


@dataclass
class OutputConfig:
    """Where files are written."""

    dir: str = option("runs", "everything a run writes is below it", identity=False)


FAULTS = ("nan", "zeros", "sign_flip", "huge", "gaussian", "same_value", "alie", "label_flip")
"""What a faulty worker's update may become."""


@dataclass
class FaultsConfig:
    """What faulty workers send."""

    kind: str = option("none", "what a faulty worker's update becomes", choices=("none", *FAULTS))
    probability: float = option(
        0.1,
        "share of reporting workers that are faulty in a round; of all workers with faults.workers=fixed",
        at_least=0,
        at_most=1,
        when=("faults.kind", *FAULTS),
    )
    workers: str = option(
        "random",
        "who is faulty: anybody, drawn in every round, or the same workers in all rounds",
        choices=("random", "fixed"),
        when=("faults.workers", "fixed"),  # so that run ids without it stay as they are
    )
    scale: float = option(1e6, "the update is multiplied by it", when=("faults.kind", "huge"))
    std: float = option(1.0, "standard deviation of the noise sent instead", above=0, when=("faults.kind", "gaussian"))
    value: float = option(1.0, "what every coordinate becomes", when=("faults.kind", "same_value"))
    deviations: float | None = option(
        None, "z: standard deviations from the mean; null: the largest a majority hides", when=("faults.kind", "alie")
    )
    reject_nonfinite: bool = option(
        False, "leave out workers whose update is not finite instead of ending the run as diverged"
    )


@dataclass
class CompressionConfig:
    """What workers send instead of whole vectors."""

    name: str = option(
        "none",
        "what workers send instead of their vectors: the largest entries, or few bits for each entry",
        choices=("none", "topk", "quantise"),
        when=("compression.name", "topk", "quantise"),  # so that run ids without it stay as they are
    )
    fraction: float = option(
        0.1, "share of the entries that are sent", above=0, at_most=1, when=("compression.name", "topk")
    )
    bits: int = option(
        8, "bits of an entry, its sign included", at_least=2, at_most=16, when=("compression.name", "quantise")
    )
    error_feedback: bool | None = option(
        None,
        "workers add to an upload what earlier ones left out; null: with topk",
        when=("compression.name", "topk", "quantise"),
    )


@dataclass
class StateConfig:
    """Where the state of workers lives between rounds."""

    device: str | None = option(
        None, "where per-worker state lives between rounds; null: the training device", is_device=True, identity=False
    )
