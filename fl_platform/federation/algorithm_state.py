"""What an algorithm is given before the first round, and its state from a checkpoint."""

from typing import Any

import torch

from fl_platform.algorithms.base import Algorithm, Federation
from fl_platform.config.schema import Config
from fl_platform.engines.ranks import Ranks
from fl_platform.models.network import Network


def federation_of(
    config: Config, network: Network, ranks: Ranks, device: torch.device, dtype: torch.dtype
) -> Federation:
    """Return what an algorithm may know of the experiment."""
    return Federation(
        ranks=ranks,
        layout=network.parameters,
        num_workers=config.population,
        cohort_size=config.cohort_size,
        num_blocks=len(network.blocks),
        norms=network.norms,
        seed=config.seed,
        device=device,
        dtype=dtype,
    )


def restore_algorithm(algorithm: Algorithm, federation: Federation, checkpoint: dict[str, Any]) -> None:
    """Give an algorithm the state it has in a checkpoint, in which Lightning leaves out one without any."""
    algorithm.start(federation)
    algorithm.load_state_dict(checkpoint["callbacks"].get(algorithm.state_key, {}))
