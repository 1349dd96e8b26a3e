"""A network as a function of flat parameters, for one worker or for a stack of workers."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fl_platform.models.flat import Binding, Layout, Stack, Vector
from fl_platform.models.layers import ConvolvedMaxima, Features, Pass, has_hooks, running


class Precision(NamedTuple):
    """The arithmetic of a run (key ``precision``): of everything, and of the layers' own products if that differs."""

    dtype: torch.dtype  # parameters, updates, statistics, Gram matrices and averages
    autocast: torch.dtype | None = None  # what torch.autocast turns products and convolutions of a forward pass into


PRECISIONS = {
    "float32": Precision(torch.float32),
    "float64": Precision(torch.float64),
    "bf16-mixed": Precision(torch.float32, torch.bfloat16),
}


def refuse_tf32() -> None:
    """Let CUDA compute float32 products in float32: cuDNN's own default is TensorFloat-32, with 10 bits.

    cuDNN's flag alone leaves its layers to ``torch.backends.fp32_precision``, which a user may have set.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for layers in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn):  # type: ignore[attr-defined]
        layers.fp32_precision = "ieee"  # type: ignore[union-attr]


def exact_arithmetic() -> None:
    """Refuse TensorFloat-32, and let cuDNN add up in a fixed order, so that a run repeats its bits on the same GPU."""
    refuse_tf32()
    torch.backends.cudnn.deterministic = True


@contextmanager
def allowing_tf32(is_allowed: bool) -> Iterator[None]:
    """Allow TensorFloat-32 within the block, if it is to be; refuse it after."""
    if not is_allowed:
        yield
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        refuse_tf32()


Weights = list[Tensor]  # one tensor per parameter, with a leading stack dimension or without


@dataclass(frozen=True)
class Output:
    """What a forward pass leaves: logits, the representation, and the activation after each block that ran."""

    logits: Tensor
    features: Tensor | None
    activations: Sequence[Tensor]


class Widest(TorchFunctionMode):
    """Notes how many numbers per sample the largest tensor has that a function of torch returns for a batch."""

    def __init__(self, batch: Tensor) -> None:
        super().__init__()
        self._samples, self.numbers = len(batch), math.prod(batch.shape[1:])

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.shape[:1] == (self._samples,):  # and not a weight
            self.numbers = max(self.numbers, math.prod(found.shape[1:]))
        return found


class Network:
    """The skeleton of a model; its weights are arguments.

    ``single`` runs one worker without a stack dimension; ``stacked`` runs S workers at once through torch.vmap,
    with batches padded to one length. A parameter argument without a stack dimension is shared by all workers.
    """

    def __init__(self, module: nn.Module, autocast: torch.dtype | None = None, *, allows_tf32: bool = False) -> None:
        self.module, self.autocast, self.allows_tf32 = module, autocast, allows_tf32
        self.blocks: list[nn.Module] = list(module) if isinstance(module, nn.Sequential) else [module]
        if not any(isinstance(child, Features) for child in module.modules()):
            tap_last_linear(module)
        self._binding = Binding(module)
        self.initial_params, self.initial_buffers = self._binding.read()
        self._calls = [calls(block) for block in self.blocks]
        self._widest: dict[torch.Size, int] = {}  # by the shape of a sample

    @property
    def parameters(self) -> Layout:
        return self._binding.parameters

    @property
    def buffers(self) -> Layout:
        return self._binding.buffers

    @property
    def norms(self) -> frozenset[str]:
        """Names of the parameters of normalisation layers."""
        modules = dict(self.module.named_modules())
        return frozenset(
            name for name in self.parameters.names if "Norm" in type(modules[name.rpartition(".")[0]]).__name__
        )

    @property
    def maxima(self) -> list[ConvolvedMaxima]:
        """Convolutions whose maxima are taken."""
        return [call for block in self._calls for call in block if isinstance(call, ConvolvedMaxima)]

    def copy(self) -> "Network":
        """A network with slots of its own, for another thread."""
        return Network(copy.deepcopy(self.module), self.autocast, allows_tf32=self.allows_tf32)

    def to(self, device: torch.device) -> "Network":
        """Move the integer and boolean buffers; weights and running statistics are arguments. Returns itself."""
        self._binding.move_constants(device)
        return self

    def single(self, weights: Weights, buffers: Vector, x: Tensor, forward_pass: Pass, first: int = 0) -> Output:
        """One worker: weights one tensor each, buffers (b,), x (B, ...); starts at block ``first``."""
        self._binding.bind(weights, self.buffers.views(buffers))
        activations = []
        with running(forward_pass), self._arithmetic(x.device):
            for block in self._calls[first:]:
                for layer in block:
                    x = layer(x)
                activations.append(x)
        if self.autocast is None:
            return Output(x, forward_pass.features, activations)
        features, dtype = forward_pass.features, buffers.dtype
        return Output(x.to(dtype), None if features is None else features.to(dtype), activations)

    def widest(self, weights: Weights, buffers: Vector, x: Tensor) -> int:
        """Numbers per sample in the largest tensor of a forward pass in evaluation mode, found with two samples."""
        shape = x.shape[1:]
        if shape not in self._widest:
            some = x[:2]
            with torch.no_grad(), Widest(some) as seen:
                self.single(weights, buffers, some, Pass(train=False))
            self._widest[shape] = seen.numbers
        return self._widest[shape]

    def _arithmetic(self, device: torch.device) -> AbstractContextManager[object]:
        """A forward pass in ``autocast``; weights are used once a pass, so no converted copy is kept for another."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device.type, self.autocast, cache_enabled=False)

    def stacked(
        self,
        weights: Weights,
        buffers: Stack | Vector,
        x: Tensor,
        mask: Tensor | None,
        keys: Tensor,
        *,
        train: bool,
        updates_statistics: bool = False,
        first: int = 0,
    ) -> Output:
        """S workers: x (S, B, ...), mask (S, B) or None, keys (S,); weights and buffers stacked or shared."""

        def one_worker(
            weights: Weights, buffers: Vector, x: Tensor, mask: Tensor | None, key: Tensor
        ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
            forward_pass = Pass(train, mask, key, updates_statistics)
            output = self.single(weights, buffers, x, forward_pass, first)
            return output.logits, [] if output.features is None else [output.features], list(output.activations)

        shared_weights = weights[0].dim() == len(self.parameters.shapes[0])
        axes = (None if shared_weights else 0, None if buffers.dim() == 1 else 0, 0, None if mask is None else 0, 0)
        run: Callable[..., tuple[Tensor, list[Tensor], list[Tensor]]] = torch.vmap(one_worker, in_dims=axes)
        logits, features, activations = run(weights, buffers, x, mask, keys)
        return Output(logits, features[0] if features else None, activations)

    def export(self, params: Vector, buffers: Vector) -> nn.Module:
        """The module with these values in ordinary parameters and buffers, for use outside the platform."""
        self.to(params.device)
        self._binding.bind(
            [nn.Parameter(view.detach().clone()) for view in self.parameters.views(params)],
            [view.detach().clone() for view in self.buffers.views(buffers)],
        )
        return self.module


def calls(module: nn.Module) -> list[Callable[[Tensor], Tensor]]:
    """What a module runs one after another, without the cost of nn.Module's calls where no hook needs them."""
    found: list[Callable[[Tensor], Tensor]] = []
    layers = chained(module)
    while layers:
        maxima = ConvolvedMaxima.of(layers)
        found.append(maxima or (layers[0] if has_hooks(layers[0]) else layers[0].forward))
        layers = layers[len(maxima.layers) if maxima else 1 :]
    return found


def chained(module: nn.Module) -> list[nn.Module]:
    """The layers of nested chains, without those that change nothing."""
    if isinstance(module, nn.Identity):
        return []
    return [layer for child in module for layer in chained(child)] if type(module) is nn.Sequential else [module]


def tap_last_linear(module: nn.Module) -> None:
    """A module that does not say what its representation is: take the input of its last linear layer."""
    linear = [child for child in module.modules() if isinstance(child, nn.Linear)]
    if linear:
        tap = Features()
        linear[-1].register_forward_pre_hook(lambda _, inputs: (tap(inputs[0]), *inputs[1:]))
