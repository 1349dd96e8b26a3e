"""The fast engine: all workers of the cohort at once, batches padded to one length and masked."""

from torch import Tensor

from fl_platform.flat import Stack, Vector
from fl_platform.models.network import Output
from fl_platform.workers.training import Executor


class StackedExecutor(Executor):
    """Batched products and grouped convolutions through torch.vmap; nothing waits for the device."""

    def forward(
        self,
        params: Stack | Vector,
        buffers: Stack | Vector,
        x: Tensor,
        mask: Tensor | None,
        keys: Tensor,
        *,
        train: bool,
        updates_statistics: bool = False,
        first: int = 0,
    ) -> Output:
        return self.network.stacked(
            params, buffers, x, mask, keys, train=train, updates_statistics=updates_statistics, first=first
        )
