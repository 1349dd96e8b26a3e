"""Layers that know about the batch they see: padding, dropout keys, what to do with running statistics.

A network is run in two ways: for one worker, and for a stack of workers whose batches are padded to one
length. What differs is carried by the active ``Pass``; outside any pass the layers are PyTorch's own.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

from fl_platform import noise
from fl_platform.models.code import code_of
from fl_platform.models.recurrent import adopted
from fl_platform.models.stack_norm import WorkerNorm


def dropped(x: Tensor, key: Tensor, probability: float, stream: int, shape: Sequence[int]) -> Tensor:
    """Dropout by a mask of this shape, a function of the key and the stream."""
    keep = noise.keep_mask(key, math.prod(shape), probability, stream)
    return x * keep.view(shape) / kept_share(probability)


def kept_share(probability: float) -> float:
    """What dropout divides by."""
    return (1 - probability) or 1


@dataclass
class Pass:
    """One forward pass of one worker.

    mask: (B,) False for padding, None when every row is real. key: scalar int64 dropout key. max_pool2d, linear,
    dropout: what computes the layers of these names. maxima: what computes a convolution, its maxima and ReLU in one,
    or gives None.
    """

    train: bool
    mask: Tensor | None = None
    key: Tensor | None = None
    updates_statistics: bool = False
    features: Tensor | None = None
    max_pool2d: Callable[..., Any] = F.max_pool2d
    linear: Callable[..., Tensor] = F.linear
    dropout: Callable[..., Tensor] = dropped
    maxima: Callable[..., Tensor | None] | None = None
    dropout_layers: int = field(default=0)


_active: ContextVar[Pass | None] = ContextVar("pass", default=None)


@contextmanager
def running(forward_pass: Pass) -> Iterator[Pass]:
    """While the context is open, layers see this forward pass."""
    token = _active.set(forward_pass)
    try:
        yield forward_pass
    finally:
        _active.reset(token)


class BatchNorm(nn.Module):
    """BatchNorm over any number of positions, with per-worker statistics that leave padding out (no batch counter)."""

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        active = _active.get() or Pass(train=self.training, updates_statistics=True)
        if not active.train:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        is_stacked = is_batchedtensor(x)  # torch.vmap's batch_norm does not update the running statistics of a stack
        if active.mask is not None or is_stacked:
            wide = x.to(self.weight.dtype)  # statistics keep their digits when x comes from autocast
            if is_stacked and code_of(x) != "cpu":
                return self._fused(wide, active).to(x.dtype)
            mask = torch.ones(len(x), dtype=torch.bool, device=x.device) if active.mask is None else active.mask
            return self._masked(wide, mask, active.updates_statistics).to(x.dtype)
        mean, variance = (self.running_mean, self.running_var) if active.updates_statistics else (None, None)
        return F.batch_norm(x, mean, variance, self.weight, self.bias, True, self.momentum, self.eps)

    def _masked(self, x: Tensor, mask: Tensor, update: bool) -> Tensor:
        over = [0, *range(2, x.dim())]
        mask = mask.to(x.dtype).view(-1, *[1] * (x.dim() - 1))
        positions = x[0, 0].numel()
        count = (mask.sum() * positions).clamp(min=1)  # a chunk may hold no sample of this worker
        mean = (x * mask).sum(over) / count
        shape = (1, -1, *[1] * (x.dim() - 2))
        centred = x - mean.view(shape)
        variance = (centred.square() * mask).sum(over) / count
        if update:
            unbiased = variance.detach() * (count / (count - 1).clamp(min=1))
            self.running_mean.mul_(1 - self.momentum).add_(mean.detach() * self.momentum)
            self.running_var.mul_(1 - self.momentum).add_(unbiased * self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return centred * scale.view(shape) + self.bias.view(shape)

    def _fused(self, x: Tensor, active: Pass) -> Tensor:
        """The same in few kernels, for accelerators; its sums are rounded differently."""
        momentum, statistics = (
            self.momentum if active.updates_statistics else 0.0,
            (self.running_mean, self.running_var),
        )
        found: Tensor = WorkerNorm.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, active.mask, *statistics, momentum, self.eps
        )
        return found

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, momentum={self.momentum}, eps={self.eps}"


class Dropout(nn.Module):
    """Dropout whose mask is a function of the pass's key: the same alone, stacked and padded.

    ``channels`` drops whole channels, as nn.Dropout2d does.
    """

    def __init__(self, probability: float = 0.5, channels: bool = False) -> None:
        super().__init__()
        self.probability, self.channels = probability, channels

    def forward(self, x: Tensor) -> Tensor:
        active = _active.get()
        if active is None:
            drop = torch.feature_dropout if self.channels else torch.dropout
            return drop(x, self.probability, self.training)
        if not active.train:
            return x
        if active.key is None:
            raise RuntimeError("a training pass through dropout needs a key")
        shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if self.channels else x.shape
        stream = active.dropout_layers
        active.dropout_layers += 1
        return active.dropout(x, active.key, self.probability, stream, shape)


class MaxPool2d(nn.MaxPool2d):
    """nn.MaxPool2d, computed by the pass's own function."""

    def forward(self, x: Tensor) -> Any:
        active = _active.get()
        pool: Callable[..., Any] = F.max_pool2d if active is None else active.max_pool2d
        return pool(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )


class ConvolvedMaxima:
    """A convolution, the maxima of its output and ReLU, before or after them or not at all: computed in one where the
    pass has a function for it, else one after another."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        convolution, pooling = layers[0], next(layer for layer in layers if isinstance(layer, MaxPool2d))
        assert isinstance(convolution, nn.Conv2d)
        self.layers, self.convolution, self.pooling = tuple(layers), convolution, pooling
        self.is_rectified = len(layers) == len(ORDERS[0])

    @staticmethod
    def of(layers: Sequence[nn.Module]) -> "ConvolvedMaxima | None":
        """What the first layers of a chain make; None for others and layers with hooks."""
        for kinds in ORDERS:
            first = layers[: len(kinds)]
            if len(first) == len(kinds) and all(map(is_untouched, first, kinds)):
                return ConvolvedMaxima(first)
        return None

    def __call__(self, x: Tensor) -> Tensor:
        active = _active.get()
        if active is not None and active.maxima is not None:
            found = active.maxima(x, self.convolution, self.pooling, self.is_rectified)
            if found is not None:
                return found
        for layer in self.layers:
            x = layer.forward(x)
        return x


ORDERS: tuple[tuple[type[nn.Module], ...], ...] = (
    (nn.Conv2d, MaxPool2d, nn.ReLU),
    (nn.Conv2d, nn.ReLU, MaxPool2d),  # the same numbers
    (nn.Conv2d, MaxPool2d),
)
"""The chains of layers that ``ConvolvedMaxima`` computes in one, the longest first."""


def has_hooks(layer: nn.Module) -> bool:
    """Tell whether something is to be called when a layer is."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def is_untouched(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Tell whether a layer is of this very kind, without hooks and with its class's ``forward``."""
    return type(layer) is kind and not has_hooks(layer) and "forward" not in vars(layer)


class Linear(nn.Linear):
    """nn.Linear, computed by the pass's own function."""

    def forward(self, x: Tensor) -> Tensor:
        active = _active.get()
        product = F.linear if active is None else active.linear
        return product(x, self.weight, self.bias)


def adopt_layers(module: nn.Module) -> None:
    """Make all linear layers and maxima ours, with their hooks, and weights that they may share."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear
        elif type(layer) is nn.MaxPool2d:
            layer.__class__ = MaxPool2d


class Features(nn.Module):
    """Marks the representation: the input of the last linear layer, before dropout."""

    def forward(self, x: Tensor) -> Tensor:
        if (active := _active.get()) is not None:
            active.features = x
        return x


class Residual(nn.Module):
    """relu(body(x) + shortcut(x))."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Embedding(nn.Embedding):
    """nn.Embedding whose padding row has no gradient: torch.vmap ignores ``padding_idx`` for a stack of workers."""

    def forward(self, ids: Tensor) -> Tensor:
        rows = F.embedding(ids, self.weight)
        assert self.padding_idx is not None
        return torch.where(ids.eq(self.padding_idx).unsqueeze(-1), rows.detach(), rows)


def is_plain(child: nn.Embedding) -> bool:
    """Whether a layer looks rows up and does nothing else, which both engines do alike."""
    is_changed = child.padding_idx is not None or child.max_norm is not None
    return not (is_changed or child.scale_grad_by_freq or child.sparse)


def embedding_as_ours(child: nn.Embedding, name: str) -> Embedding:
    """Return a user's embedding with a padding row as ours; ValueError for one that workers cannot train."""
    if child.max_norm is not None or child.scale_grad_by_freq or child.sparse:
        raise ValueError(
            f"layer '{name}' is an Embedding with max_norm={child.max_norm}, "
            f"scale_grad_by_freq={child.scale_grad_by_freq}, sparse={child.sparse}; none of them is possible"
        )
    return Embedding(child.num_embeddings, child.embedding_dim, child.padding_idx, _weight=child.weight.detach())


def norm_layer(kind: str, channels: int) -> nn.Module:
    """model.norm: the paper's BatchNorm, GroupNorm (32 groups or the largest divisor below), or none."""
    if kind == "batch":
        return BatchNorm(channels)
    if kind == "group":
        groups = next(g for g in range(min(32, channels), 0, -1) if channels % g == 0)
        return nn.GroupNorm(groups, channels)
    return nn.Identity()


def adopt(module: nn.Module) -> None:
    """Make a user's module fit for stacking: its BatchNorm, Dropout and recurrent layers become ours."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            if not (child.affine and child.track_running_stats and child.momentum is not None):
                raise ValueError(f"BatchNorm layer '{name}' must be affine, with running statistics and a momentum")
            ours = BatchNorm(child.num_features, child.momentum, child.eps)
            ours.load_state_dict(
                {key: value for key, value in child.state_dict().items() if key != "num_batches_tracked"}
            )
            setattr(module, name, ours)
        elif isinstance(child, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            setattr(module, name, Dropout(child.p, channels=not isinstance(child, nn.Dropout)))
        elif type(child) is nn.Embedding and not is_plain(child):
            setattr(module, name, embedding_as_ours(child, name))
        elif isinstance(child, nn.RNNBase):
            setattr(module, name, adopted(child, name))
        elif isinstance(child, nn.modules.batchnorm._NormBase) and child.track_running_stats:
            raise ValueError(
                f"layer '{name}' is a {type(child).__name__}; "
                "of layers with running statistics BatchNorm1d to 3d are known"
            )
        else:
            adopt(child)
