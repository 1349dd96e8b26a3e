"""FederatedModule: a LightningModule whose training step is one federated round.

One cohort per epoch, so Lightning's ``current_epoch`` is the round; the server steps inside ``training_step``
because validation runs before ``on_train_epoch_end`` and must see the new model.
"""

import hashlib
import json
import math
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from fl_platform import seeding
from fl_platform.algorithms.base import Algorithm, Federation, Start, the_algorithm
from fl_platform.algorithms.base import get as get_algorithm
from fl_platform.algorithms.returned import also_evaluated, evaluated_params
from fl_platform.config.schema import Config, to_dict
from fl_platform.config.targets import metrics_of
from fl_platform.data.device_samples import DeviceSamples
from fl_platform.data.partition import Partition
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.data.streams import BatchStreams
from fl_platform.engines.choice import Choice
from fl_platform.engines.evaluation import Scores, evaluate
from fl_platform.engines.ranks import Ranks
from fl_platform.errors import UserError
from fl_platform.federation.algorithm_state import federation_of, restore_algorithm
from fl_platform.federation.checkpoints import check_length
from fl_platform.federation.compression import error_memory
from fl_platform.federation.engine_choice import engine_of, engine_to_go_on_with
from fl_platform.federation.faults import with_faulty_labels
from fl_platform.federation.history import History
from fl_platform.federation.pool import WorkerPool
from fl_platform.federation.round import RUNNING_STATISTICS, Model, Server, federated_round, size_table
from fl_platform.federation.schedules import are_workers_evaluated, due_metrics, is_evaluated
from fl_platform.federation.scoreboard import Scoreboard, class_accuracy, monitored
from fl_platform.federation.state import WorkerStates
from fl_platform.federation.stopped import SkippedRound, without_stop_iteration
from fl_platform.federation.training_pool import training_pool
from fl_platform.federation.worker_evaluation import FineTuning, WorkerEvaluation, mean_over_workers
from fl_platform.federation.worker_tests import assign_tests, with_tests
from fl_platform.models.classifier import as_inputs
from fl_platform.models.layers import Pass
from fl_platform.models.network import PRECISIONS, Network, exact_arithmetic
from fl_platform.runs import formats, metrics
from fl_platform.tracking.loggers import log_row


class FederatedModule(L.LightningModule):
    """The server: global model, worker pool, scoreboard; it finds its algorithm among the Trainer's callbacks."""

    global_params: Tensor
    global_buffers: Tensor
    algorithm: Algorithm  # once the Trainer has set the module up, or from a checkpoint

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        network: Network,
        train_set: Samples,
        test_set: Samples,
        partition: Partition,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config, self.dataset, self.network = config, dataset, network
        self.placeholder = torch.nn.Parameter(torch.zeros(()))  # DDP refuses a module without parameters
        partition, self.worker_tests = assign_tests(config, partition, train_set, test_set)
        self._sets = with_faulty_labels(train_set, partition, dataset.num_classes, config), test_set
        self.members = self.streams = BatchStreams(partition, config.batch_size, config.seed)
        if get_algorithm(config.algorithm["name"]).pools_data:
            self.streams = BatchStreams(partition.pooled(), config.batch_size, config.seed)
        self.sizes = self.streams.partition.sizes
        self.pool = WorkerPool(
            config.population, config.cohort_size, config.availability, config.seed, config.cohort_sampling
        )
        self.scoreboard, self.history = Scoreboard(list(config.evaluation.targets or [])), History()
        dtype = PRECISIONS[config.precision].dtype
        self.register_buffer("global_params", network.initial_params.to(dtype, copy=True))
        self.register_buffer("global_buffers", network.initial_buffers.to(dtype, copy=True))
        self.row: dict[str, Any] = {}  # of this round

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls, checkpoint_path: str | Path, map_location: str | torch.device | None = None, code: Collection[str] = ()
    ) -> "FederatedModule":
        """Return the module of a run's checkpoint, with its data, model, rounds and algorithm.

        It can be called on raw features and scored with ``Trainer.test``; to go on training, give the checkpoint to
        ``Trainer.fit`` or use ``run --resume``. ``code`` names plugins, and a model by its dotted path, that it may
        import. Raises UserError for a file that no run wrote, for missing data, and for code that is not named.
        """
        from fl_platform.federation.trained import restored_module

        return restored_module(Path(checkpoint_path), code).to(map_location)

    def class_counts(self) -> np.ndarray:
        """(N, K): how many training samples of each class every worker has."""
        return self.members.partition.class_counts(self._sets[0].labels.numpy(), self.dataset.num_classes)

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.trainer.global_rank, self.trainer.world_size, self.trainer.strategy.root_device)

    def federation(self, device: torch.device) -> Federation:
        return federation_of(self.config, self.network, self.ranks, device, self.global_params.dtype)

    def setup(self, stage: str) -> None:
        device = self.trainer.strategy.root_device
        exact_arithmetic()
        if stage == "fit" or not hasattr(self, "algorithm"):
            self.algorithm = the_algorithm(self.trainer)
        self.train_samples, self.test_samples = (
            DeviceSamples(samples, self.dataset, device, self.global_params.dtype) for samples in self._sets
        )
        keeps = {**self.algorithm.keeps, **error_memory(self.algorithm, self.config.compression)}
        if self.config.buffers == "local":
            keeps[RUNNING_STATISTICS] = Start.GLOBAL_BUFFERS
        self.states = WorkerStates(keeps, torch.device(self.config.state.device or device))
        first = (self.network.initial_params, self.network.initial_buffers)
        initial = Model(*(v.to(device, self.global_params.dtype) for v in first))  # Lightning moves the module later
        choice = engine_of(
            *(self.config, self.network, self.train_samples, self.streams, initial, self.ranks),
            shape=self.dataset.shape,
        )
        self._use_engine(choice, initial)

    def _use_engine(self, choice: Choice, initial: Model) -> None:
        """Make what trains cohorts with an engine from ``initial`` on."""
        self.engine_choice, engine = choice, choice.engine
        is_loop = engine == "loop" and initial.params.device.type == "cpu"
        # Where workers are trained one by one, threads train some side by side and kernels have one each.
        torch.set_num_threads(1 if is_loop else self.config.threads)
        make_pool = partial(
            training_pool,
            *(self.config, self.network, self.train_samples, self.streams, self.ranks),
            engine=engine,
            num_threads=self.config.threads if is_loop else 1,
        )
        self.threads = make_pool(algorithm=self.algorithm, seed=self.config.seed)
        self.server = Server(
            config=self.config,
            algorithm=self.algorithm,
            pool=self.pool,
            streams=self.streams,
            members=self.members,
            sizes=self.sizes,
            states=self.states,
            threads=self.threads,
            chunk=1 if engine == "loop" else self.config.cohort_chunk,
            size_table=size_table(self.sizes, initial.params),
            initial=initial,
            ranks=self.ranks,
        )
        self.worker_evaluation: WorkerEvaluation | None = None
        if self.config.evaluation.workers:
            tuning = self.threads
            if self.config.evaluation.finetune_steps:
                tuning = make_pool(algorithm=FineTuning(), seed=seeding.key(self.config.seed, "finetune"))
            self.worker_evaluation = WorkerEvaluation(
                server=self.server,
                network=self.network,
                samples=self.train_samples if self.worker_tests.are_for_training else self.test_samples,
                training=self.members.partition,
                tests=with_tests(self.worker_tests.of_workers, self.config),
                fine_tuning=tuning,
                is_stacked=engine == "stacked",
            )

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return []  # the server rule is the algorithm's

    def train_dataloader(self) -> list[int]:
        return [0]  # one batch per epoch: the round itself

    def val_dataloader(self) -> list[int]:
        return [0]

    def test_dataloader(self) -> list[int]:
        return [0]

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of raw features [B, ...]: images are uint8 in 0..255 or floating point in [0, 1].

        The model is the one whose accuracy counts, in evaluation mode.
        """
        scale, shift = (v.to(features.device, self.global_params.dtype) for v in self.dataset.scale_and_shift())
        inputs = as_inputs(features, self.dataset.features, scale, shift)
        weights = self.network.parameters.views(self.scored_params)
        return self.network.single(weights, self.global_buffers, inputs, Pass(train=False)).logits

    @property
    def scored_params(self) -> Tensor:
        """The parameters of the model whose accuracy counts."""
        known = getattr(self, "algorithm", None)
        return evaluated_params(known, self.global_params) if known else self.global_params

    # --- one round ---

    @property
    def round(self) -> int:
        """1-based, as the paper counts."""
        return self.current_epoch + 1

    def on_train_epoch_start(self) -> None:
        self.row = {}

    @without_stop_iteration
    def training_step(self, batch: Any, batch_idx: int) -> None:
        started = time.perf_counter()
        done = federated_round(self.server, Model(self.global_params, self.global_buffers), self.round)
        self.global_params, self.global_buffers = done.model
        if done.is_diverged:
            self._diverge()
        self.row = done.logged | self.scoreboard.spent(done.num_bytes, time.perf_counter() - started)
        self.scoreboard.noted(self.row)

    def _diverge(self) -> None:
        self.scoreboard.diverged_round = self.round
        self.trainer.should_stop = True

    # --- evaluation and logging ---

    @without_stop_iteration
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.trainer.sanity_checking or self.scoreboard.diverged_round is not None:
            return
        if is_evaluated(self.config, self.round) or self.trainer.should_stop:
            self._evaluate_server()
        is_due = are_workers_evaluated(self.config, self.round) or self.trainer.should_stop
        if self.worker_evaluation is not None and is_due and self.scoreboard.diverged_round is None:
            found = self.worker_evaluation.metrics(Model(self.scored_params, self.global_buffers), self.round)
            self.row |= found
            self._offer({name: value for name, value in found.items() if name != metrics.EACH_WORKER})

    def _evaluate_server(self) -> None:
        """Score the model that counts, and those beside it, on the test set."""
        scores = self.evaluate()
        self.row[metrics.TEST_LOSS] = scores.loss
        if not math.isfinite(scores.loss):  # an accuracy of such outputs says nothing
            self._diverge()
            return
        per_class = class_accuracy(scores.correct, scores.total)
        others = {"loss": scores.loss, **scores.further}
        self.row |= self.scoreboard.evaluated(self.round, scores.accuracy, per_class, others)
        self._offer(monitored(scores))
        for name, params in also_evaluated(self.algorithm, self.global_params).items():
            other = self.evaluate(params)
            if math.isfinite(other.loss):
                self.row[metrics.score_of(name, "loss")] = other.loss
                self.row[metrics.score_of(name, "accuracy")] = other.accuracy

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log_dict(monitored(self.evaluate()), batch_size=1)  # what Trainer.test returns

    def _offer(self, values: dict[str, float]) -> None:
        """Let callbacks monitor an evaluation, as EarlyStopping does.

        ``log_dict`` takes a millisecond more for the same: it sums over the batches of an epoch, and here there is one.
        """
        self.trainer.callback_metrics.update({name: torch.tensor(value) for name, value in values.items()})

    def evaluate(self, params: Tensor | None = None) -> Scores:
        """Scores of the model that counts, or of another, on the whole test set."""
        if params is None and self.algorithm.is_scored_by_workers:
            return mean_over_workers(self.server, Model(self.global_params, self.global_buffers), self._evaluate)
        return self._evaluate(self.scored_params if params is None else params, self.global_buffers)

    def _evaluate(self, params: Tensor, buffers: Tensor) -> Scores:
        classes = self.dataset.num_classes
        asked = metrics_of(self.config.evaluation.metrics, self.config.evaluation.targets or [])
        return evaluate(
            self.network, params, buffers, self.test_samples, classes, self.threads, self.ranks, further=asked
        )

    def on_train_epoch_end(self) -> None:
        if not self.row:
            raise SkippedRound(self.round)
        self.history.append(self.row)
        log_row(self.loggers, self.row)

    def fingerprint(self) -> str:
        """sha256 of the parameters and buffers."""
        digest = hashlib.sha256()
        for tensor in (self.global_params, self.global_buffers):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["federated"] = {
            "config": json.dumps(to_dict(self.config)),
            "pool": self.pool.state_dict(),
            "streams": self.streams.state_dict(),
            "states": self.states.state_dict(),
            "scoreboard": json.dumps(vars(self.scoreboard)),
            **self.history.state(),
            "format": formats.CHECKPOINT,
            "engine": {"engine": self.engine_choice.engine, "device": self.engine_choice.device},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        for name in ("global_params", "global_buffers"):
            check_length(name, checkpoint["state_dict"].get(name), getattr(self, name))
        try:
            saved = checkpoint["federated"]
            self.pool.load_state_dict(saved["pool"])
            self.streams.load_state_dict(saved["streams"])
            self.states.load_state_dict(saved["states"])
            self.restore_rounds(saved, Path(self.trainer.ckpt_path or "").parent)
            if choice := engine_to_go_on_with(saved.get("engine"), self.config.engine, self.engine_choice):
                self._use_engine(choice, self.server.initial)
            if self.trainer.state.fn is not TrainerFn.FITTING:  # Lightning restores callbacks for training only
                restore_algorithm(self.algorithm, self.federation(self.device), checkpoint)
        except (KeyError, TypeError, IndexError, AttributeError, json.JSONDecodeError) as error:
            raise UserError(
                f"the checkpoint does not hold what this version saves ({type(error).__name__}: {error}); "
                "leave out --continue or --resume to start again"
            ) from None

    def restore_rounds(self, saved: dict[str, Any], beside: Path) -> None:
        """Take over the rounds so far from what ``on_save_checkpoint`` put under ``federated``.

        ``beside`` is the checkpoint's directory, where the files of earlier rows lie.
        """
        self.scoreboard = Scoreboard(**json.loads(saved["scoreboard"]))
        self.history.load(saved, beside)
        self._forget_early_evaluation()

    def _forget_early_evaluation(self) -> None:
        """A round that was evaluated because it was to be the last, and is not, counts as the others between two."""
        if self.history and self.scoreboard.diverged_round is None:
            kept = due_metrics(self.config, self.history[-1])
            if len(kept) < len(self.history[-1]):
                self.history.replace_last(kept)
                self.scoreboard = Scoreboard.of_rows(self.scoreboard.targets, self.history)
