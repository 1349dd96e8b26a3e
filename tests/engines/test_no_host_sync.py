"""The stacked engine never waits for the device: its local steps run on tensors that have no values at all.

On the meta device `.item()`, `.cpu()`, `bool(tensor)` and every shape that depends on a value raise.
"""

import numpy as np
import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.algorithms.base import Algorithm, Federation, LocalStep
from fl_platform.config.options import walk
from fl_platform.data.images import Images
from fl_platform.engines.cohort import TrainingPool, train_cohort
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.stacked import StackedObjective
from fl_platform.engines.training import LocalResult, LocalTraining, LocalWork
from fl_platform.federation.build import make_algorithm
from tests.federations import make_config, make_module, synthetic_dataset

META = torch.device("meta")
COLOUR = synthetic_dataset((3, 32, 32), classes=3)


def train_without_values(algorithm: Algorithm | None, *words: str) -> LocalResult:
    config = make_config("engine=stacked", "precision=float32", *words)
    dataset = COLOUR if config.model.name != "mlp" else None
    module = make_module(config, dataset=dataset)
    algorithm = algorithm or make_algorithm(config)
    params, buffers = (tensor.to(META) for tensor in (module.global_params, module.global_buffers))
    federation = Federation(
        ranks=Ranks(0, 1), layout=module.network.parameters, num_workers=config.num_workers,
        cohort_size=config.cohort_size, num_blocks=len(module.network.blocks), seed=0, device=META,
        dtype=torch.float32,
    )  # fmt: skip
    algorithm.start(federation)
    images = Images(module._sets[0], module.dataset, META, torch.float32)
    training = LocalTraining(
        StackedObjective, module.network, algorithm, images, module.streams, local_lr=0.1, local_steps=3, seed=0
    )
    workers = np.array([0, 4, 2])
    algorithm.begin_round(workers, 1)
    lengths = {name: buffers if start.is_buffers else params for name, start in algorithm.keeps.items()}
    state = {name: torch.zeros_like(like).expand(3, -1) for name, like in lengths.items()}
    work = LocalWork(
        round=1, workers=workers, plan=module.streams.draw(workers, 3), global_params=params, global_buffers=buffers,
        buffers=buffers, relative_sizes=params.new_ones(3), state=state,
    )  # fmt: skip
    widths = {name: len(lengths.get(name, params)) for name in {*algorithm.keeps, *algorithm.sends}}
    return train_cohort(TrainingPool([training]), work, widths, None, Ranks(0, 1))


METHODS = sorted(base.names())
PROJECTING = [name for name in METHODS if "qp.scope" in dict(walk(base.get(name)))]


@pytest.mark.parametrize(
    ("name", "scope"), [*((name, None) for name in METHODS), *((name, "tensor") for name in PROJECTING)]
)
def test_local_steps_of_every_method_need_no_value(name, scope):
    result = train_without_values(None, f"algorithm.name={name}", *([f"algorithm.qp.scope={scope}"] if scope else []))
    assert result.delta.device == META
    assert result.delta.shape[0] == 3


@pytest.mark.parametrize("model", ["mlp", "lenet5", "vgg11", "resnet20"])
@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_local_steps_of_every_network_need_no_value(model, norm):
    words = (f"model.name={model}", f"model.norm={norm}", *(["model.width=16"] if model == "resnet20" else []))
    assert train_without_values(None, *words).delta.device == META


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.sum().item(),
        lambda t: t.cpu().numpy(),
        lambda t: bool(t.sum() > 0),
        lambda t: t[t > 0],
        lambda t: t.nonzero(),
    ],
    ids=["item", "cpu", "bool", "mask", "nonzero"],
)
def test_reading_a_value_would_be_seen(read):
    class Curious(Algorithm):
        def local_direction(self, step: LocalStep) -> torch.Tensor:
            read(step.gradient)
            return step.gradient

    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        train_without_values(Curious())
