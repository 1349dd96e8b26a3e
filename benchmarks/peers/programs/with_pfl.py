"""FedAvg with pfl-research: its SimulatedBackend, FederatedAveraging and CentralEvaluationCallback."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from common import EVALUATED_AT_ONCE, begin
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch_parts import make_network, tensors


class Network(nn.Module):
    """The network with the two methods that pfl asks of a model."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.layers = make_network(name)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        self.eval() if eval else self.train()
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Weighted]:
        self.eval() if eval else self.train()
        return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}


class Ticks(TrainingProcessCallback):
    """Tells the clock about the end of a round; it stands behind the evaluation."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        name = StringMetricName("Central val | accuracy")
        known = name in aggregate_metrics  # there is no evaluation after the first round
        self.clock.tick(aggregate_metrics[name].overall_value if known else 0.0)
        return False, Metrics()


def main() -> None:
    work, clock = begin()
    torch.manual_seed(work.seed)
    np.random.seed(work.seed)  # noqa: NPY002 - what it draws from
    x, y, test_x, test_y = tensors(work)
    users = {worker: [x[mine], y[mine]] for worker, mine in enumerate(torch.from_numpy(work.split))}

    def user(worker: int) -> Dataset:
        images, labels = users[worker]
        order = torch.randperm(len(labels))
        return Dataset(raw_data=[images[order], labels[order]], user_id=str(worker))

    sampler = get_user_sampler("minimize_reuse", list(users))
    network = Network(work.network)
    evaluation = NNEvalHyperParams(local_batch_size=EVALUATED_AT_ONCE)
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=FederatedDataset(user, sampler), val_data=None),
        model=PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=clock.total,
            evaluation_frequency=clock.total + 1,
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.rate, local_batch_size=work.batch
        ),
        model_eval_params=evaluation,
        callbacks=[CentralEvaluationCallback(Dataset([test_x, test_y]), evaluation), Ticks(clock)],
    )
    clock.finish("pfl", "torch")


if __name__ == "__main__":
    main()
