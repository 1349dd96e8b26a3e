"""Architectures by name, or any nn.Module by its dotted path."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from fl_platform.errors import UserError, unknown_name
from fl_platform.models.layers import adopt

Shape = tuple[int, int, int]
Builder = Callable[..., nn.Sequential]

_architectures: dict[str, tuple[str, Builder]] = {}


def architecture(name: str, description: str) -> Callable[[Builder], Builder]:
    """Register ``builder(shape, num_classes, norm, width)``, which returns a Sequential of named blocks."""

    def register(builder: Builder) -> Builder:
        if name in _architectures:
            raise ValueError(f"a model named '{name}' is registered already")
        _architectures[name] = (description, builder)
        return builder

    return register


def names() -> dict[str, str]:
    """Every registered architecture with its description."""
    return {name: description for name, (description, _) in _architectures.items()}


def build(
    name: str,
    shape: Shape,
    num_classes: int,
    *,
    norm: str = "batch",
    width: int | None = None,
    options: Mapping[str, Any] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """A freshly initialised network; PyTorch's default initialisation, drawn from ``generator`` alone."""
    with torch.random.fork_rng(devices=[]):
        if generator is not None:
            torch.set_rng_state(generator.get_state())
        if name in _architectures:
            if options:
                raise UserError(f"model.options={dict(options)} only applies to a model given by its dotted path, not to model.name={name}")
            module: nn.Module = _architectures[name][1](shape, num_classes, norm=norm, width=width)
        elif "." in name:
            module = imported(name, dict(options or {}))
        else:
            raise unknown_name("model.name", name, _architectures)
    check_output(name, module, shape, num_classes)
    return module


def imported(path: str, options: dict[str, Any]) -> nn.Module:
    """The user's own nn.Module, its BatchNorm and Dropout replaced by layers that know padding."""
    module_name, _, attribute = path.rpartition(".")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"model.name={path} cannot be imported: {error}") from None
    try:
        module = factory(**options)
    except TypeError as error:
        raise UserError(f"model.name={path} with model.options={options} cannot be built: {error}") from None
    if not isinstance(module, nn.Module):
        raise UserError(f"model.name={path} gives a {type(module).__name__}, not a torch.nn.Module")
    adopt(module)
    return module


def check_output(name: str, module: nn.Module, shape: Shape, num_classes: int) -> None:
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            output = module(torch.zeros(2, *shape))
    except RuntimeError as error:
        raise UserError(f"model.name={name} cannot take images of shape {shape}: {' '.join(str(error).split())}") from None
    finally:
        module.train(was_training)
    if tuple(output.shape) != (2, num_classes):
        raise UserError(f"model.name={name} gives outputs of shape {tuple(output.shape[1:])} for {num_classes} classes")


def check_name(name: str) -> None:
    """Raise UserError unless the name is registered or could be a dotted path."""
    if name not in _architectures and "." not in name:
        raise unknown_name("model.name", name, _architectures)
