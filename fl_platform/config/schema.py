"""The one place where defaults live: what a run is, as nested dataclasses of documented options.

``compose`` merges presets, YAML files and ``key=value`` arguments into a ``Config`` and refuses what it does not
know. Keys left at ``null`` follow the data set and are filled in by ``resolve``.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from fl_platform.config.data_schema import DataConfig
from fl_platform.config.options import group, option, walk
from fl_platform.config.targets import FURTHER_METRICS
from fl_platform.errors import UserError


@dataclass
class ModelConfig:
    name: str | None = option(None, "architecture or the dotted path of an nn.Module; null: the data set's own")
    norm: str = option("batch", "normalisation layers", choices=("batch", "group", "none"))
    width: int | None = option(
        None, "resnet20: its first stage, 64 (default) or 16; char_gru: its state, 128", at_least=1, at_most=4096
    )
    options: dict[str, Any] = option({}, "keyword arguments for a model given by dotted path")


@dataclass
class AvailabilityConfig:
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
        [], "figures of the test set beside accuracy and loss", choices=FURTHER_METRICS, identity="changed"
    )
    workers: bool = option(
        False, "also score models on every worker's own test samples (data.worker_test_fraction)", identity="changed"
    )
    workers_every: int | None = option(
        None,
        "rounds between evaluations on workers, starting with the first; null: evaluation.every",
        at_least=1,
        when=("evaluation.workers", True),
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
    dir: str = option("runs", "everything a run writes is below it", identity=False)


FAULTS = ("nan", "zeros", "sign_flip", "huge", "gaussian", "same_value", "alie", "label_flip")
"""What a faulty worker's update may become."""


@dataclass
class FaultsConfig:
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
    device: str | None = option(
        None, "where per-worker state lives between rounds; null: the training device", is_device=True, identity=False
    )


def schedule_option(rate: str) -> Any:
    """Declare how a rate changes from round to round."""
    return option(
        "constant",
        f"{rate} over the rounds: constant, times a factor per round or per so many rounds, or half a cosine wave",
        choices=("constant", "exponential", "step", "cosine"),
        identity="changed",
    )


def decay_option(rate: str) -> Any:
    """Declare the factor of a schedule."""
    return option(
        0.99,
        f"factor of {rate} per round (exponential) or per {rate}_every rounds (step)",
        above=0,
        at_most=1,
        when=(f"{rate}_schedule", "exponential", "step"),
    )


def every_option(rate: str) -> Any:
    """Declare how many rounds a step of a schedule lasts."""
    return option(100, "rounds between two steps of the schedule", at_least=1, when=(f"{rate}_schedule", "step"))


def floor_option(rate: str) -> Any:
    """Declare where a cosine wave ends."""
    return option(
        0.0,
        f"share of {rate} that half a cosine wave comes down to after num_rounds",
        at_least=0,
        at_most=1,
        when=(f"{rate}_schedule", "cosine"),
    )


@dataclass
class Config:
    preset: str = option(
        "paper",
        "values for the readings of the paper; every other key overrides it; see `list presets`",
        identity=False,
    )
    scenario: str | None = option(
        None,
        "one of the paper's columns: sets data, model, omega, S, T and targets; see `list scenarios`",
        identity=False,
    )
    chosen: str | None = option(
        None, "YAML of hyper-parameters chosen per algorithm and scenario; see `sweep best`", identity=False
    )
    point: str | None = option(
        None, "further key=value arguments, so that a sweep can range over what is not a full product", identity=False
    )
    plugins: list[str] = option(
        [], "modules to import first; they may register algorithms, models and data sets", identity=False
    )
    callbacks: list[str] = option(
        [], "dotted paths of Lightning callbacks, made without arguments, that watch the run", identity=False
    )
    seed: int = option(0, "fixes partition, initial weights, cohorts and batches for every algorithm", at_least=0)
    data: DataConfig = group(DataConfig, "training data")
    model: ModelConfig = group(ModelConfig, "network")
    num_workers: int | None = option(
        None, "N; null: 100, or all owners of a natural partition, or all workers of a partition file", at_least=1
    )
    cohort_size: int = option(10, "S: workers sampled a round", at_least=1)
    cohort_sampling: str = option(
        "fixed",
        "S workers without replacement, or every worker with probability S/N (cohorts of different sizes)",
        choices=("fixed", "poisson"),
        when=("cohort_sampling", "poisson"),  # so that run ids without it stay as they are
    )
    num_rounds: int | None = option(None, "T; null: the paper's for the data set", at_least=1)
    local_steps: int | None = option(
        5, "I: SGD steps of a worker a round; null where local_epochs is given", at_least=1, at_most=1_000_000
    )
    local_epochs: int | None = option(
        None,
        "passes of a worker over its data a round, instead of local_steps",
        at_least=1,
        at_most=1_000_000,
        identity="changed",
    )
    batch_size: int = option(64, "samples of a local step", at_least=1, at_most=1_000_000)
    local_lr: float = option(0.1, "eta_l", above=0, grid=(0.001, 0.01, 0.1))
    local_lr_schedule: str = schedule_option("local_lr")
    local_lr_decay: float = decay_option("local_lr")
    local_lr_every: int = every_option("local_lr")
    local_lr_floor: float = floor_option("local_lr")
    local_momentum: float = option(
        0.0,
        "heavy-ball momentum of a worker's steps, zero at the start of a round",
        at_least=0,
        below=1,
        identity="changed",
    )
    local_weight_decay: float = option(
        0.0, "this times the parameters is added to the direction of a local step", at_least=0, identity="changed"
    )
    local_clip: float | None = option(
        None,
        "longest direction of a local step, before weight decay and momentum; null: any",
        above=0,
        identity="changed",
    )
    work: WorkConfig = group(WorkConfig, "how much of its local work a worker does")
    server_lr: float = option(1.0, "eta_g", above=0, grid=(0.1, 1.0, 10.0))
    server_lr_schedule: str = schedule_option("server_lr")
    server_lr_decay: float = decay_option("server_lr")
    server_lr_every: int = every_option("server_lr")
    server_lr_floor: float = floor_option("server_lr")
    aggregation: str = option(
        "uniform",
        "weights of the updates: 1/S, or by the workers' sample counts",
        choices=("uniform", "samples"),
        presets={"released": "samples"},
    )
    buffers: str = option(
        "average",
        "BatchNorm statistics: averaged like updates, never changed on the server, or kept by each worker",
        choices=("average", "server", "local"),
    )
    algorithm: dict[str, Any] = option(
        {"name": "fedavg"}, "algorithm.name and that algorithm's own fields; see `list algorithms`"
    )
    availability: AvailabilityConfig = group(AvailabilityConfig, "which sampled workers report")
    state: StateConfig = group(StateConfig, "per-worker state")
    faults: FaultsConfig = group(FaultsConfig, "faulty workers")
    compression: CompressionConfig = group(CompressionConfig, "compressed uploads")
    evaluation: EvaluationConfig = group(EvaluationConfig, "evaluation of the global model")
    precision: str = option(
        "float32",
        "arithmetic of training and aggregation; bf16-mixed: float32 with the networks' products in bfloat16",
        choices=("float32", "float64", "bf16-mixed"),
    )
    tf32: bool = option(
        False,
        "on CUDA, the networks' products and convolutions in TensorFloat-32; all else keeps full precision",
        when=("tf32", True),  # so that run ids without it stay as they are
    )
    device: str = option("auto", "auto | cpu | cuda | cuda:K", identity=False)
    threads: int = option(
        1,
        "workers trained side by side on a CPU, or threads of torch's kernels (engine=stacked); 1 on a shared machine",
        at_least=1,
        at_most=1024,
        identity=False,
    )
    engine: str = option(
        "auto",
        "how a cohort is computed; auto: loop on a CPU, elsewhere the faster in a timed trial, kept in the user cache",
        choices=("auto", "loop", "stacked"),
        identity=False,
    )
    graphs: bool = option(
        False,
        "on CUDA with engine=stacked, gradients of fixed shapes are captured once and replayed as one launch",
        identity=False,
    )
    cohort_chunk: int | None = option(
        None, "workers trained at once when a whole cohort does not fit; null: all", at_least=1, identity=False
    )
    tracking: TrackingConfig = group(TrackingConfig, "Weights & Biases")
    checkpoint: CheckpointConfig = group(CheckpointConfig, "checkpoints")
    output: OutputConfig = group(OutputConfig, "files")
    trainer: dict[str, Any] = option({}, "passed to lightning.Trainer unchanged")

    @property
    def population(self) -> int:
        """N of a resolved configuration."""
        assert self.num_workers is not None
        return self.num_workers


OPEN_GROUPS = ("algorithm", "trainer", "model.options", "data.partition_options")
"""Groups whose keys this file does not know: the algorithm, Lightning and the user's model check them."""

PLACEMENT_FIELDS = ("algorithm.memory_device", "algorithm.memory_shard")
"""The fields of algorithms that do not enter a run id, for readers of runs, which do not import the algorithms."""


@cache
def known_keys() -> Mapping[str, "dataclasses.Field[Any]"]:
    """Return every option of ``Config`` by dotted key."""
    return MappingProxyType(dict(walk(Config)))


def shown(value: Any) -> str:
    return "null" if value is None else str(value)


def flatten(values: dict[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested mappings as (dotted key, leaf); an empty mapping is a leaf."""
    leaves: list[tuple[str, Any]] = []
    for name, value in values.items():
        if not isinstance(name, str):
            raise UserError(f"'{prefix}{name}' is not a key: it is a {type(name).__name__}, keys are words")
        if isinstance(value, dict) and value:
            leaves += flatten(value, f"{prefix}{name}.")
        else:
            leaves.append((f"{prefix}{name}", value))
    return leaves


def to_dict(config: Config) -> dict[str, Any]:
    return dataclasses.asdict(config)
