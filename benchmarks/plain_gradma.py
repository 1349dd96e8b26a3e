"""GradMA as its paper describes it, written plainly in PyTorch, beside this platform's rounds of W1.

    python -m benchmarks.plain_gradma

Both do the same work in a round: S workers in turn, I steps each with the gradients at x_tau, x_{tau-1} and x_t on one
batch and a projection onto three anchors, the update of a memory of 100 vectors, the server's projection onto it, and
an evaluation of all test images. The plain one holds float32 images, logs nothing, and takes gradients by autograd.
Its QPs are solved by the exact solver of ``fl_platform.qp``, which is faster than the cvxpylayers of the authors.
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.federation import run, threads, w1_arguments
from fl_platform import models, qp
from fl_platform.federation.module import FederatedModule
from fl_platform.qp.solve import solve

ROUNDS = 12
SLOTS, DECAY = 100, 0.5


def gradient(network: nn.Module, at: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the cross-entropy at the parameters ``at``."""
    vector_to_parameters(at, network.parameters())
    loss = F.cross_entropy(network(x), labels)
    return parameters_to_vector(torch.autograd.grad(loss, list(network.parameters())))


def local_work(network: nn.Module, start: Tensor, batches: list[tuple[Tensor, Tensor]], rate: float) -> Tensor:
    """What a worker ends with."""
    x = previous = start
    for images, labels in batches:
        at_x, at_previous, at_start = (gradient(network, at, images, labels) for at in (x, previous, start))
        anchors = torch.stack([at_previous, at_start, x - start])
        previous, x = x, x - rate * qp.project(at_x, anchors).vectors
    return x


def server_step(direction: Tensor, memory: Tensor) -> Tensor:
    """The direction, projected so that it opposes no row of the memory."""
    gram, products = (memory @ memory.T).double(), (memory @ direction).double()
    found = solve(gram, products, direction.double().square().sum(), resolution=1e-6, on_failure="keep")
    return direction + found.multipliers.to(direction.dtype) @ memory


def plain_rounds(module: FederatedModule, width: int) -> list[float]:
    """CPU seconds of rounds on the images of a run, with batches of ``width`` samples."""
    config = module.config
    network = models.build("mlp", (1, 28, 28), 10, norm="none", generator=torch.Generator().manual_seed(0))
    images = module.test_samples.whole()
    labels = torch.randint(0, 10, (len(images),), generator=torch.Generator().manual_seed(1))
    x = parameters_to_vector(network.parameters()).detach()
    momentum, memory = torch.zeros_like(x), torch.zeros(SLOTS, x.numel())
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        cohort = torch.randperm(SLOTS)[: config.cohort_size]
        batches = torch.randint(0, len(images), (config.cohort_size, int(config.local_steps or 0), width))
        ends = [
            local_work(network, x, [(images[rows], labels[rows]) for rows in own], config.local_lr) for own in batches
        ]
        updates = x - torch.stack(ends)
        memory.mul_(DECAY)
        memory[cohort] += updates
        momentum = server_step(DECAY * momentum + updates.mean(0), memory)
        x = x - config.server_lr * momentum
        vector_to_parameters(x, network.parameters())
        with torch.no_grad():
            for part in torch.split(images, 1000):
                network(part).argmax(1)
        seconds.append(time.process_time() - started)
    return seconds


def lower_quartile(seconds: list[float]) -> float:
    """Of CPU times on a busy machine the small ones say most."""
    return sorted(seconds)[len(seconds) // 4]


def main() -> int:
    """Print CPU milliseconds of a round of both, in turns: ours, plain, ours."""
    with threads(1):
        arguments = w1_arguments("algorithm.name=gradma", f"algorithm.memory_size={SLOTS}")
        first = run(arguments, ROUNDS)
        samples = sum(first.watch.samples) / len(first.watch.samples)
        plain = plain_rounds(first.module, round(samples / 50))
        second = run(arguments, ROUNDS)
    ours = lower_quartile([seconds.cpu for seconds in (*first.watch.rounds, *second.watch.rounds)])
    theirs = lower_quartile(plain[2:])
    print(f"fl_platform {1000 * ours:.0f} ms, plain {1000 * theirs:.0f} ms of CPU time a round: {theirs / ours:.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
