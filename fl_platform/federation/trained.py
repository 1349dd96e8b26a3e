"""The trained model of a run, read back from its checkpoints without executing anything in them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fl_platform.algorithms.base import has_default
from fl_platform.config.compose import from_given, parse_mapping
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import Config
from fl_platform.data import datasets
from fl_platform.data.sets.base import Dataset
from fl_platform.engines.ranks import Ranks
from fl_platform.errors import UserError
from fl_platform.federation.algorithm_state import federation_of, restore_algorithm
from fl_platform.federation.build import build, make_algorithm, make_network
from fl_platform.federation.checkpoints import config_in, foreign, load
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.named_code import MODEL_KEYS, refuse_unnamed_code, trusted
from fl_platform.models.classifier import Classifier
from fl_platform.models.network import Network
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import CHECKPOINTS, best_files, is_valid, newest_valid, round_of
from fl_platform.runs.directory import RunDirectory

Which = Literal["best", "last"]


@dataclass(frozen=True)
class Trained:
    """A model of a run: its values, the round they are of, and the configuration that trained it."""

    config: Config
    round: int
    network: Network
    params: Tensor
    buffers: Tensor

    @property
    def dataset(self) -> Dataset:
        return datasets.get(self.config.data.name)

    def classifier(self) -> Classifier:
        """Return the model in evaluation mode, with the normalisation of its data set."""
        module = self.network.export(self.params, self.buffers)
        scale, shift = (values.to(self.params.dtype) for values in self.dataset.scale_and_shift())
        classifier = Classifier(module, self.dataset.features, scale, shift)
        return classifier.eval().requires_grad_(False)


def load_model(
    run: str | Path, which: Which = "last", *, attempt: Path | None = None, code: Collection[str] = ()
) -> Classifier:
    """Return the model of a run directory in evaluation mode, with the normalisation of its data set.

    It takes raw features [B, ...]; images are uint8 in 0..255, or floating point in [0, 1]. ``which`` is "last", the
    model of the last round, or "best", the one with the highest test (or validation) accuracy, which runs with
    ``checkpoint.keep_best=true`` keep. ``attempt`` is one of the run's attempts, by default the one that counts.
    ``code`` names plugins, and a model by its dotted path, that the run's configuration may import; those of runs of
    this process need not be named. Raises UserError where there is no such run or the model was not kept, and for code
    that is not named.
    """
    return read_trained(Path(run), which, attempt=attempt, code=code).classifier()


def read_trained(run: Path, which: Which, *, attempt: Path | None = None, code: Collection[str] = ()) -> Trained:
    """Return the values of a run's model; UserError as ``load_model``."""
    if which not in get_args(Which):
        raise UserError(f"which={which} is not allowed; allowed: {' | '.join(get_args(Which))}")
    files = RunDirectory(run.parent, run.name)
    attempt = attempt if attempt is not None and attempt.is_dir() else files.counted_attempt()
    if attempt is None:
        raise UserError(f"{run} is not the directory of a run; it lies in output.dir and is named by its run id")
    return _best(run, attempt, code) if which == "best" else _last(run, attempt, code)


def _best(run: Path, attempt: Path, code: Collection[str]) -> Trained:
    found = [path for path in best_files(attempt / CHECKPOINTS) if is_valid(path)]
    top = (RunDirectory(run.parent, run.name).result() or {}).get(metrics.TOP_ACCURACY_ROUND)
    if not found or top not in (None, round_of(found[-1])):
        raise UserError(
            f"run {run.name} did not keep its best model; runs with checkpoint.keep_best=true do, "
            "and the model of the last round is there as last"
        )
    path = found[-1]
    loaded = load(path)
    params, buffers = loaded.get("params"), loaded.get("buffers")
    return _trained(path, _config(config_in(loaded, path), path, code), params, buffers)


def _last(run: Path, attempt: Path, code: Collection[str]) -> Trained:
    path = newest_valid(attempt / CHECKPOINTS)
    if path is None:
        raise UserError(
            f"run {run.name} has no checkpoint left; runs with checkpoint.keep_finished=true keep their last model"
        )
    loaded = load(path, mmap=True)  # most of it is state of workers and of the server's method
    try:
        saved = loaded["federated"], loaded["state_dict"], loaded["callbacks"]
    except KeyError:
        raise foreign(path) from None
    federated, values, callbacks = saved
    config = _config(config_in(federated, path), path, code)
    return _trained(path, config, values.get("global_params"), values.get("global_buffers"), callbacks)


def _config(saved: dict[str, Any], path: Path, code: Collection[str]) -> Config:
    """The configuration in a checkpoint; UserError where it names code that the user did not."""
    config = from_given(parse_mapping(saved, str(path)))
    refuse_unnamed_code(config, {*code, *trusted()}, str(path), MODEL_KEYS)
    return resolve(config).config


def restored_module(path: Path, code: Collection[str] = ()) -> FederatedModule:
    """Return the module of a checkpoint, with its data, and with an algorithm in the state that was saved.

    ``code`` is that of ``load_model``. Raises UserError for a file that no run wrote, where the data is missing, and
    for code that is not named.
    """
    if not path.is_file():
        raise UserError(f"checkpoint {path}: no such file")
    loaded = load(path)
    try:
        federated, values = loaded["federated"], loaded["state_dict"]
    except KeyError:
        raise foreign(path) from None
    config = _config(config_in(federated, path), path, code)
    algorithm = make_algorithm(config)
    module = build(config, algorithm)
    module.load_state_dict(values)
    module.restore_rounds(federated, path.parent)
    federation = federation_of(config, module.network, Ranks(), torch.device("cpu"), module.global_params.dtype)
    restore_algorithm(algorithm, federation, loaded)
    module.algorithm = algorithm
    return module


def _trained(path: Path, config: Config, params: Any, buffers: Any, callbacks: dict[str, Any] | None = None) -> Trained:
    """A model of saved values; with the state of ``callbacks``, the one of the algorithm's models that counts."""
    dataset, algorithm = datasets.get(config.data.name), make_algorithm(config)
    network = make_network(config, dataset, algorithm)
    sizes = (network.parameters.dim, network.buffers.dim)
    if not all(isinstance(value, Tensor) for value in (params, buffers)) or (len(params), len(buffers)) != sizes:
        raise UserError(f"checkpoint {path} does not fit model.name={config.model.name} on {dataset.name}")
    if callbacks is not None and not has_default(algorithm, "evaluated_params"):
        federation = federation_of(config, network, Ranks(), torch.device("cpu"), params.dtype)
        restore_algorithm(algorithm, federation, {"callbacks": callbacks})
        params = algorithm.evaluated_params(params)
    return Trained(config, round_of(path), network, params, buffers)
