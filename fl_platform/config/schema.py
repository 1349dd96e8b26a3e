"""The one place where defaults live: what a run is, as nested dataclasses of documented options.

``compose`` merges presets, YAML files and ``key=value`` arguments into a ``Config`` and refuses what it does not
know. Keys left at ``null`` follow the data set and are filled in by ``resolve``.
"""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from fl_platform.config.data_schema import DataConfig
from fl_platform.config.groups import (
    AvailabilityConfig,
    CheckpointConfig,
    CompressionConfig,
    EvaluationConfig,
    FaultsConfig,
    ModelConfig,
    OutputConfig,
    StateConfig,
    TrackingConfig,
    WorkConfig,
)
from fl_platform.config.options import group, option, walk
from fl_platform.errors import UserError


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
    """Every key of a run with its default; ``docs/options.md`` is made from it."""

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
        "S workers without replacement; every worker with probability S/N (cohorts of different sizes); or each worker "
        "once in ceil(N/S) rounds, in an order drawn anew",
        choices=("fixed", "poisson", "epochs"),
        when=("cohort_sampling", "poisson", "epochs"),  # so that run ids without it stay as they are
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


SCALARS = (bool, int, float, str, type(None))
"""Types of values that cannot be changed in place."""

OPEN_GROUPS = ("algorithm", "trainer", "model.options", "data.partition_options")
"""Groups whose keys this file does not know: the algorithm, Lightning and the user's model check them."""

PLACEMENT_FIELDS = ("algorithm.memory_device", "algorithm.memory_shard")
"""The fields of algorithms that do not enter a run id, for readers of runs, which do not import the algorithms."""


@cache
def known_keys() -> Mapping[str, "dataclasses.Field[Any]"]:
    """Return every option of ``Config`` by dotted key."""
    return MappingProxyType(dict(walk(Config)))


def shown(value: Any) -> str:
    """A value as it is typed on the command line."""
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
            leaves.append((prefix + name, value))
    return leaves


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as nested mappings that share nothing with it: ``dataclasses.asdict`` in half of its time."""
    made = dict(vars(config))
    for name, value in made.items():
        if not isinstance(value, SCALARS):
            made[name] = to_dict(value) if dataclasses.is_dataclass(value) else copy.deepcopy(value)
    return made
