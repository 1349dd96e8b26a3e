"""Checks of what hooks return: an error names the method and the hook, where torch would name neither."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm
from fl_platform.models.flat import Vector


class HookError(TypeError):
    """A hook of an algorithm broke its contract."""

    def __init__(self, algorithm: Algorithm, hook: str, message: str) -> None:
        super().__init__(message)
        self.algorithm, self.hook = algorithm, hook


class HookResultError(HookError):
    """A hook of an algorithm returned something else than it has to."""

    def __init__(self, algorithm: Algorithm, hook: str, found: str, expected: str) -> None:
        message = f"{type(algorithm).__name__}.{hook} returned {found}; it must return {expected}"
        super().__init__(algorithm, hook, message)


def check_returned(algorithm: Algorithm, hook: str, value: Any, like: Tensor, rows: int | None = None) -> None:
    """Raise HookResultError unless a hook returned a plain tensor of the shape, type, layout and device of ``like``.

    With ``rows`` it may also be a stack of so many.
    """
    if not isinstance(value, Tensor):
        raise HookResultError(algorithm, hook, f"a {type(value).__name__}", described(like))
    is_stack = rows is not None and value.shape == (rows, *like.shape)
    is_alike = (value.dtype, value.device, value.layout) == (like.dtype, like.device, like.layout)
    if not (is_stack or value.shape == like.shape) or not is_alike or value.requires_grad:
        expected = described(like) if rows is None else f"{described(like)}, or a stack of {rows}"
        raise HookResultError(algorithm, hook, described(value), expected)


def check_pair(algorithm: Algorithm, hook: str, value: Any, likes: Iterable[Tensor], rows: int) -> None:
    """Raise HookResultError unless a hook returned parameters and running statistics, each for one or ``rows``."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        found = f"{len(value)} values" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
        raise HookResultError(algorithm, hook, found, "two tensors: parameters and running statistics")
    for found, like in zip(value, likes, strict=True):
        check_returned(algorithm, hook, found, like, rows=rows)


def check_names(algorithm: Algorithm, hook: str, value: Any, names: Iterable[str] | None = None) -> None:
    """Raise HookResultError unless a hook returned a mapping from texts, of exactly these ``names`` where given."""
    is_mapping = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    if not is_mapping or (names is not None and value.keys() != set(names)):
        found = f"values for {list(value) or 'nothing'}" if is_mapping else f"a {type(value).__name__}"
        expected = (
            "a mapping from names" if names is None else f"values for {sorted(names)}, as keeps and sends declare"
        )
        raise HookResultError(algorithm, hook, found, expected)


def diagnostics_of(algorithm: Algorithm) -> dict[str, float]:
    """The ``diagnostics`` of an algorithm; HookResultError unless they are numbers by name."""
    found = algorithm.diagnostics()
    check_names(algorithm, "diagnostics", found)
    for name, value in found.items():
        if not isinstance(value, int | float):
            raise HookResultError(algorithm, "diagnostics", f"a {type(value).__name__} for {name}", "numbers")
    return found


def evaluated_params(algorithm: Algorithm, global_params: Vector) -> Vector:
    """The parameters whose accuracy counts; HookResultError unless they are like the server's."""
    found = algorithm.evaluated_params(global_params)
    check_returned(algorithm, "evaluated_params", found, global_params)
    return found


def also_evaluated(algorithm: Algorithm, global_params: Vector) -> dict[str, Vector]:
    """The models scored beside it, by name; HookResultError unless they are like the server's."""
    found = algorithm.also_evaluated(global_params)
    check_names(algorithm, "also_evaluated", found)
    for params in found.values():
        check_returned(algorithm, "also_evaluated", params, global_params)
    return found


def check_losses(algorithm: Algorithm, value: Any, workers: int, device: torch.device) -> None:
    """Raise HookResultError unless ``local_loss`` returned one real number per worker, of whatever precision."""
    is_stack = isinstance(value, Tensor) and value.shape == (workers,) and value.is_floating_point()
    if not is_stack or value.device != device:
        found = described(value) if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise HookResultError(algorithm, "local_loss", found, f"a tensor of shape ({workers},), on {device}")


def described(tensor: Tensor) -> str:
    """Shape, type and device of a tensor, for a message."""
    kind = "a tensor" if tensor.layout is torch.strided else f"a tensor of layout {tensor.layout}"
    graph = ", with a graph of gradients (detach it)" if tensor.requires_grad else ""
    return f"{kind} of shape {tuple(tensor.shape)}, {tensor.dtype}, on {tensor.device}{graph}"
