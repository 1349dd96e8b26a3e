"""The time of a network's convolutions and linear layers alone, at the shapes a run gives them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.clock import Seconds, in_turns, total
from fl_platform.engines.evaluation import batch_of
from fl_platform.federation.module import FederatedModule


def input_shapes(module: nn.Module, x: Tensor) -> list[tuple[nn.Module, torch.Size]]:
    """Each convolution and linear layer with the shape of one sample of its input, in the order they run."""
    found: list[tuple[nn.Module, torch.Size]] = []
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [
        layer.register_forward_hook(lambda own, args, _: found.append((own, args[0].shape[1:]))) for layer in layers
    ]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    return found


def call(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    if isinstance(layer, nn.Conv2d):
        return lambda x: F.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding)
    assert isinstance(layer, nn.Linear)
    return lambda x: F.linear(x, layer.weight, layer.bias)


def fastest(repeats: int, make: Callable[[torch.memory_format], Callable[[], object]], is_image: bool) -> Seconds:
    """The better memory layout's time."""
    formats = [torch.contiguous_format, torch.channels_last] if is_image else [torch.contiguous_format]
    return min(in_turns(repeats, *(make(layout) for layout in formats)), key=lambda seconds: seconds.wall)


def forward_time(layer: nn.Module, shape: torch.Size, size: int, repeats: int) -> Seconds:
    run = call(layer)

    def make(layout: torch.memory_format) -> Callable[[], object]:
        x = torch.randn(size, *shape).to(memory_format=layout)

        @torch.no_grad()
        def work() -> None:
            run(x)

        return work

    return fastest(repeats, make, len(shape) == 3)


def training_time(layer: nn.Module, shape: torch.Size, size: int, repeats: int, is_first: bool) -> Seconds:
    """Forward and backward; the images themselves need no gradient."""
    run, weights = call(layer), list(layer.parameters())

    def make(layout: torch.memory_format) -> Callable[[], object]:
        x = torch.randn(size, *shape).to(memory_format=layout).requires_grad_(not is_first)
        with torch.no_grad():
            ones = torch.ones_like(run(x))
        wanted = weights if is_first else [x, *weights]
        return lambda: torch.autograd.grad(run(x), wanted, ones)

    return fastest(repeats, make, len(shape) == 3)


LARGEST_KEPT = 32_000_000
"""Bytes of a block that, once freed, has malloc keep all smaller ones for the next."""


def layer_bound(module: FederatedModule, samples: float, repeats: int) -> Seconds:
    """Of a round: training on ``samples`` in batches, and one evaluation; in memory that malloc keeps, as in a run."""
    torch.empty(LARGEST_KEPT, dtype=torch.uint8)
    network = module.network.export(module.global_params, module.global_buffers)
    shapes = input_shapes(network.eval(), module.test_samples.whole()[:2])
    steps, size = samples / module.config.batch_size, module.config.batch_size
    weights = module.network.parameters.views(module.global_params)
    chunk = batch_of(module.network, weights, module.global_buffers, module.test_samples.whole())
    times = []
    for index, (layer, shape) in enumerate(shapes):
        times.append(training_time(layer, shape, size, repeats * 5, index == 0) * steps)
        times.append(forward_time(layer, shape, chunk, repeats) * (len(module.test_samples) / chunk))
    return total(times)
