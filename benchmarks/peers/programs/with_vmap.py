"""FedAvg with all workers of a cohort at once: torch.func.vmap over stacked parameters."""

import numpy as np
import torch
import torch.nn.functional as F
from common import begin
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch_parts import accuracy_of, make_network, tensors


def main() -> None:
    work, clock = begin()
    torch.manual_seed(work.seed)
    rng = np.random.default_rng(work.seed)
    x, y, test_x, test_y = tensors(work)
    network = make_network(work.network)

    def loss(params: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(network, params, (images,)), labels)

    gradients = vmap(grad(loss), randomness="different")
    current = {name: value.detach().clone() for name, value in network.named_parameters()}
    for _ in range(clock.total):
        network.train()
        cohort = rng.choice(work.num_workers, work.cohort, replace=False)
        orders = np.stack([rng.permutation(work.split[worker]) for worker in cohort])
        params = {name: value.expand(work.cohort, *value.shape) for name, value in current.items()}
        for indices in torch.from_numpy(orders).split(work.batch, dim=1):
            found = gradients(params, x[indices], y[indices])
            params = {name: value - work.rate * found[name] for name, value in params.items()}
        current = {name: value.mean(0) for name, value in params.items()}
        network.load_state_dict(current)
        clock.tick(accuracy_of(network, test_x, test_y))
    clock.finish("torch")


if __name__ == "__main__":
    main()
