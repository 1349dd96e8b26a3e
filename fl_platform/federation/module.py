"""FederatedModule: a LightningModule whose training step is one federated round.

One cohort per epoch, so Lightning's ``current_epoch`` is the round; the server steps inside ``training_step``
because validation runs before ``on_train_epoch_end`` and must see the new model.
"""

import copy
import hashlib
import json
import math
import time
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from fl_platform.algorithms.base import Federation, Updates, the_algorithm
from fl_platform.config.schema import Config, to_dict
from fl_platform.data.datasets import Dataset
from fl_platform.data.image_set import ImageSet
from fl_platform.data.images import Images
from fl_platform.data.partition import Partition
from fl_platform.data.streams import BatchStreams
from fl_platform.engines.choice import ENGINES, choose_engine
from fl_platform.engines.cohort import Crew, train_cohort
from fl_platform.engines.evaluation import Scores, evaluate
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.training import Job, LocalResult, LocalTraining
from fl_platform.errors import UserError
from fl_platform.federation.faults import finite_rows, spoil, take
from fl_platform.federation.pool import WorkerPool
from fl_platform.federation.scoreboard import Scoreboard, class_accuracy
from fl_platform.federation.state import WorkerStates
from fl_platform.models.network import Network
from fl_platform.runs import metrics


class FederatedModule(L.LightningModule):
    """The server: global model, worker pool, scoreboard; it finds its algorithm among the Trainer's callbacks."""

    global_params: Tensor
    global_buffers: Tensor

    def __init__(
        self,
        config: Config,
        dataset: Dataset,
        network: Network,
        train_set: ImageSet,
        test_set: ImageSet,
        partition: Partition,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config, self.dataset, self.network = config, dataset, network
        self.placeholder = torch.nn.Parameter(torch.zeros(()))  # DDP refuses a module without parameters
        self._sets = (train_set, test_set)
        self.sizes, self._all_samples = partition.sizes, int(partition.sizes.sum())
        self.streams = BatchStreams(partition, config.batch_size, config.seed)
        self.pool = WorkerPool(config.num_workers, config.cohort_size, config.availability, config.seed)
        self.scoreboard = Scoreboard(list(config.evaluation.targets or []))
        self.history: list[dict[str, Any]] = []
        dtype = getattr(torch, config.precision)
        self.register_buffer("global_params", network.initial_params.to(dtype, copy=True))
        self.register_buffer("global_buffers", network.initial_buffers.to(dtype, copy=True))
        self.row: dict[str, Any] = {}  # the figures of this round

    @property
    def ranks(self) -> Ranks:
        return Ranks(self.trainer.global_rank, self.trainer.world_size)

    def federation(self, device: torch.device) -> Federation:
        return Federation(
            ranks=self.ranks,
            layout=self.network.parameters,
            num_workers=self.config.num_workers,
            cohort_size=self.config.cohort_size,
            num_blocks=len(self.network.blocks),
            seed=self.config.seed,
            device=device,
            dtype=self.global_params.dtype,
        )

    def setup(self, stage: str) -> None:
        device = self.trainer.strategy.root_device
        self.algorithm = the_algorithm(self.trainer)
        self.train_images, self.test_images = (
            Images(images, self.dataset, device, self.global_params.dtype) for images in self._sets
        )
        keeps = dict(self.algorithm.keeps)
        if self.config.buffers == "local":
            keeps["running_statistics"] = "global_buffers"
        self.states = WorkerStates(keeps, torch.device(self.config.state.device or device))
        self.engine = choose_engine(self.config.engine, device)
        is_loop = self.engine == "loop" and device.type == "cpu"
        # Where workers are trained one by one, threads train some side by side and kernels have one each.
        torch.set_num_threads(1 if is_loop else self.config.threads)
        self.crew = Crew([self._local_training(index) for index in range(self.config.threads if is_loop else 1)])

    def _local_training(self, index: int) -> LocalTraining:
        network = self.network if index == 0 else Network(copy.deepcopy(self.network.module))
        return LocalTraining(
            ENGINES[self.engine],
            network,
            self.algorithm,
            self.train_images,
            self.streams,
            local_lr=self.config.local_lr,
            local_steps=self.config.local_steps,
            seed=self.config.seed,
        )

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return []  # the server rule is the algorithm's

    def train_dataloader(self) -> list[int]:
        return [0]  # one batch an epoch: the round itself

    def val_dataloader(self) -> list[int]:
        return [0]

    # --- one round ---

    @property
    def round(self) -> int:
        """1-based, as the paper counts."""
        return self.current_epoch + 1

    def training_step(self, batch: Any, batch_idx: int) -> None:
        started = time.perf_counter()
        cohort = self.pool.sample(self.round)
        self.row = {
            metrics.ROUND: self.round,
            metrics.COHORT_SIZE: len(cohort.reporting),
            metrics.COHORT: cohort.reporting.tolist(),
        }
        if len(cohort.reporting):
            self._federated_round(cohort.reporting)
        self.scoreboard.total_bytes += self._round_bytes(len(cohort.sampled), len(cohort.reporting))
        seconds = time.perf_counter() - started
        self.scoreboard.total_seconds += seconds
        self.row |= {
            metrics.ROUND_SECONDS: seconds,
            metrics.TOTAL_SECONDS: self.scoreboard.total_seconds,
            metrics.TOTAL_BYTES: self.scoreboard.total_bytes,
        }

    def _federated_round(self, workers: np.ndarray) -> None:
        self.algorithm.begin_round(workers, self.round)
        result = self._train(workers)
        faulty = spoil(result, self.config.faults, self.config.seed, self.round)
        if self.config.faults.kind != "none":
            self.row[metrics.FAULTY_WORKERS] = faulty
        if self.config.faults.reject_nonfinite:
            rows = finite_rows(result)
            self.row[metrics.REJECTED_WORKERS] = len(workers) - len(rows)
            workers, result = workers[rows], take(result, rows)
        if len(workers):
            self._server_step(workers, result)

    def _train(self, workers: np.ndarray) -> LocalResult:
        """Local training of the cohort; what the workers started from is let go before the server's step."""
        given = {
            "global_params": self.global_params,
            "global_buffers": self.global_buffers,
            "initial_params": self.network.initial_params.to(self.global_params),
            "initial_buffers": self.network.initial_buffers.to(self.global_params),
        }
        state = self.states.gather(workers, given)
        job = Job(
            round=self.round,
            workers=workers,
            plan=self.streams.draw(workers, self.config.local_steps),
            global_params=self.global_params,
            global_buffers=self.global_buffers,
            buffers=state.pop("running_statistics", self.global_buffers),
            relative_sizes=torch.from_numpy(self.sizes[workers] * len(self.sizes) / self._all_samples).to(
                self.global_params
            ),
            state=state,
        )
        chunk = 1 if self.engine == "loop" else self.config.cohort_chunk
        return train_cohort(self.crew, job, self._widths(), chunk, self.ranks)

    def _widths(self) -> dict[str, int]:
        """Length of what a worker keeps and sends, by name."""
        buffers = {name for name, default in self.algorithm.keeps.items() if default.endswith("buffers")}
        names = sorted({*self.algorithm.keeps, *self.algorithm.sends})
        return {name: len(self.global_buffers if name in buffers else self.global_params) for name in names}

    def _server_step(self, workers: np.ndarray, result: LocalResult) -> None:
        sizes = torch.from_numpy(self.sizes[workers]).to(self.global_params)
        uniform = self.config.aggregation == "uniform"
        updates = Updates(
            round=self.round,
            workers=workers,
            delta=result.delta,
            weights=torch.full_like(sizes, 1 / len(workers)) if uniform else sizes / sizes.sum(),
            population_weights=torch.full_like(sizes, 1 / self.config.num_workers)
            if uniform
            else sizes / self._all_samples,
            sent={name: result.outcome[name] for name in self.algorithm.sends},
            global_params=self.global_params,
        )
        norm = float(torch.linalg.vector_norm(updates.mean_delta))
        self.row |= {
            metrics.TRAIN_LOSS: float(result.loss.mean()),
            metrics.UPDATE_NORM: norm,
            **result.records.reduced(),
        }
        if not math.isfinite(norm):  # nothing may reach the projection or an average: the round is not applied
            self._diverge()
            return
        direction = self.algorithm.server_direction(updates)
        self.global_params.sub_(direction, alpha=self.config.server_lr)
        self.row |= self.algorithm.diagnostics()
        kept = {name: result.outcome[name] for name in self.algorithm.keeps}
        if self.config.buffers == "local":
            kept["running_statistics"] = result.buffers
        self.states.scatter(workers, kept)
        if self.config.buffers != "server":
            self.global_buffers.copy_(updates.average(result.buffers))
        if not bool(torch.isfinite(self.global_params.sum())):
            self._diverge()

    def _diverge(self) -> None:
        self.scoreboard.diverged_round = self.round
        self.trainer.should_stop = True

    def _round_bytes(self, sampled: int, reporting: int) -> int:
        """Models down to every sampled worker, updates up from those that report; statistics travel when averaged."""
        vector = self.global_params.numel() * self.global_params.element_size()
        statistics = (
            self.global_buffers.numel() * self.global_buffers.element_size() if self.config.buffers == "average" else 0
        )
        down, up = self.algorithm.downloads, self.algorithm.uploads
        return sampled * (down * vector + statistics) + reporting * (up * vector + statistics)

    # --- evaluation and logging ---

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.scoreboard.diverged_round is not None or not self.is_due(self.round):
            return
        scores = self.evaluate()
        self.row[metrics.TEST_LOSS] = scores.loss
        if not math.isfinite(scores.loss):  # an accuracy of such outputs says nothing
            self._diverge()
            return
        per_class = class_accuracy(scores.correct, scores.total)
        self.row |= self.scoreboard.evaluated(self.round, scores.accuracy, per_class)
        for name, params in self.algorithm.also_evaluated(self.global_params).items():
            other = self.evaluate(params)
            if math.isfinite(other.loss):
                self.row |= {
                    metrics.score_of(name, "loss"): other.loss,
                    metrics.score_of(name, "accuracy"): other.accuracy,
                }

    def is_due(self, round: int) -> bool:
        """Evaluated rounds are the first, every ``evaluation.every`` from it, and the last."""
        every = self.config.evaluation.every or 1
        return (round - 1) % every == 0 or round == self.config.num_rounds or self.trainer.should_stop

    def evaluate(self, params: Tensor | None = None) -> Scores:
        """Of the model that counts, or of another, on the whole test set."""
        params = self.algorithm.evaluated_params(self.global_params) if params is None else params
        classes = self.dataset.num_classes
        return evaluate(self.network, params, self.global_buffers, self.test_images, classes, self.crew, self.ranks)

    def on_train_epoch_end(self) -> None:
        self.history.append(self.row)
        if self.logger is not None:
            self.logger.log_metrics(self.row)

    def fingerprint(self) -> str:
        """sha256 of the parameters and buffers."""
        digest = hashlib.sha256()
        for tensor in (self.global_params, self.global_buffers):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    # --- checkpoints ---

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["federated"] = {
            "config": json.dumps(to_dict(self.config)),
            "pool": self.pool.state_dict(),
            "streams": self.streams.state_dict(),
            "states": self.states.state_dict(),
            "scoreboard": json.dumps(vars(self.scoreboard)),
            "history": json.dumps(self.history),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        try:
            saved = checkpoint["federated"]
            self.pool.load_state_dict(saved["pool"])
            self.streams.load_state_dict(saved["streams"])
            self.states.load_state_dict(saved["states"])
            self.scoreboard = Scoreboard(**json.loads(saved["scoreboard"]))
            self.history = json.loads(saved["history"])
        except (KeyError, TypeError, IndexError, AttributeError, json.JSONDecodeError) as error:
            raise UserError(
                f"the checkpoint does not hold what this version saves ({type(error).__name__}: {error}); "
                "leave out --continue or --resume to start again"
            ) from None
