"""FedAvg as a loop over workers in plain PyTorch."""

import numpy as np
import torch
from common import begin
from torch_parts import accuracy_of, make_network, tensors, train_epoch


def main() -> None:
    work, clock = begin()
    torch.manual_seed(work.seed)
    rng = np.random.default_rng(work.seed)
    x, y, test_x, test_y = tensors(work)
    network = make_network(work.network)
    current = {name: value.clone() for name, value in network.state_dict().items()}
    for _ in range(clock.total):
        mean = {name: torch.zeros_like(value) for name, value in current.items()}
        for worker in rng.choice(work.num_workers, work.cohort, replace=False):
            network.load_state_dict(current)
            train_epoch(network, x, y, work.batch, work.rate, rng.permutation(work.split[worker]))
            for name, value in network.state_dict().items():
                mean[name] += value / work.cohort
        current = mean
        network.load_state_dict(current)
        clock.tick(accuracy_of(network, test_x, test_y))
    clock.finish("torch")


if __name__ == "__main__":
    main()
