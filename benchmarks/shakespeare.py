"""A round on Shakespeare with 10 of 1,011 workers against a plain PyTorch loop of the same work, in CPU time.

python -m benchmarks.shakespeare --rounds 10      (after `data get shakespeare`)

The loop trains PyTorch's own layers on the cohort's own batches, worker by worker, and averages what comes out. Both
take turns, so that a busy machine slows both; the ratio is that of the medians.
"""

import argparse
import copy
import statistics
import time

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data.streams import BatchPlan
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.module import FederatedModule
from fl_platform.models.char_gru import EMBEDDING

LOCAL_LR = 1.0


class Plain(nn.Module):
    """char_gru as one would write it."""

    def __init__(self, num_tokens: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, 128, batch_first=True)
        self.output = nn.Linear(128, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(self.gru(self.embedding(x))[1][-1])
        return logits


def plain_round(server: Plain, plan: BatchPlan, features: Tensor, labels: Tensor) -> None:
    """FedAvg on a cohort's batches: local SGD of each worker, then the mean of their parameters."""
    sums = [torch.zeros_like(value) for value in server.parameters()]
    workers = plan.indices.shape[1]
    for worker in range(workers):
        network = copy.deepcopy(server)
        optimiser = torch.optim.SGD(network.parameters(), LOCAL_LR)
        for step in range(len(plan.indices)):
            chosen = torch.from_numpy(plan.indices[step, worker, : plan.counts[step, worker]])
            optimiser.zero_grad()
            F.cross_entropy(network(features[chosen].long()), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        for total, value in zip(sums, network.parameters(), strict=True):
            total += value.detach() / workers
    with torch.no_grad():
        for value, total in zip(server.parameters(), sums, strict=True):
            value.copy_(total)


class InTurns(L.Callback):
    """Times each round, and after it the plain loop on the batches that the round drew."""

    def __init__(self, module: FederatedModule) -> None:
        self.seconds: tuple[list[float], list[float]] = ([], [])
        self._server = Plain(module.dataset.num_tokens, module.dataset.num_classes)
        self._samples = module._sets[0]
        draw = module.streams.draw

        def watched(*args: object, **keywords: object) -> BatchPlan:
            self._plan = draw(*args, **keywords)  # type: ignore[arg-type]
            return self._plan

        module.streams.draw = watched  # type: ignore[method-assign]

    def on_train_batch_start(self, trainer: L.Trainer, *_: object) -> None:
        self._started = time.process_time()

    def on_train_batch_end(self, trainer: L.Trainer, *_: object) -> None:
        self.seconds[0].append(time.process_time() - self._started)
        started = time.process_time()
        plain_round(self._server, self._plan, self._samples.features, self._samples.labels)
        self.seconds[1].append(time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description="Shakespeare: a round against a plain PyTorch loop.")
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    keys = ["data.name=shakespeare", f"local_lr={LOCAL_LR}", f"num_rounds={rounds + 2}", "tracking.mode=disabled"]
    config = resolve(compose([*keys, f"evaluation.every={rounds + 2}"])).config
    algorithm = make_algorithm(config)
    module = build(config, algorithm)
    watch = InTurns(module)
    L.Trainer(
        accelerator="cpu", max_epochs=rounds + 2, logger=False, callbacks=[algorithm, watch], limit_val_batches=0,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(module)  # fmt: skip
    ours, plain = (statistics.median(times[2:]) for times in watch.seconds)  # two rounds to warm up
    print(f"round {1000 * ours:.0f} ms, plain loop {1000 * plain:.0f} ms: {ours / plain:.2f} x")


if __name__ == "__main__":
    main()
