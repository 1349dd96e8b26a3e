"""Architectures by name, or any nn.Module by its dotted path."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fl_platform.config.plugins import import_module
from fl_platform.config.registry import MODELS, check_model_name
from fl_platform.errors import UserError
from fl_platform.models.layers import Pass, adopt, adopt_layers, running

Shape = tuple[int, ...]
Builder = Callable[..., nn.Sequential]
Adapt = Callable[[nn.Module, Tensor, int], None]
"""Changes a network in place, given two inputs and a number of classes; may raise ValueError("cannot ...")."""


@dataclass(frozen=True)
class Architecture:
    """A registered model; ``takes`` says which features, and only one that ``has_width`` may be given a model.width."""

    description: str
    build: Builder
    has_width: bool = False
    takes: tuple[str, ...] = ("images",)


def architecture(
    name: str, description: str, has_width: bool = False, takes: tuple[str, ...] = ("images",)
) -> Callable[[Builder], Builder]:
    """Register ``builder(shape, num_classes, norm, width)``, which returns a Sequential of named blocks.

    ``takes`` lists the features of data sets that the network can be given: images, numbers or tokens. A builder of
    networks for tokens is given their number as ``num_tokens``, too.
    """

    def register(builder: Builder) -> Builder:
        MODELS.add(name, Architecture(description, builder, has_width, takes), builder)
        return builder

    return register


def example_inputs(shape: Shape, features: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return two inputs of zeros, of the type that the network is given."""
    return torch.zeros(2, *shape, dtype=torch.int64 if features == "tokens" else dtype)


def build(
    name: str,
    shape: Shape,
    num_classes: int,
    *,
    features: str = "images",
    num_tokens: int = 0,
    norm: str = "batch",
    width: int | None = None,
    options: Mapping[str, Any] | None = None,
    generator: torch.Generator | None = None,
    adapt: Adapt | None = None,
) -> nn.Module:
    """Return a freshly initialised network: PyTorch's default initialisation, drawn from ``generator`` alone.

    BatchNorm and Dropout layers in it are replaced by ones that know padding, GRU and LSTM layers by ones that both
    engines can run.

    ``shape``, ``features`` and ``num_tokens`` are those of the data set. ``adapt`` may change the network before it is
    used; what it adds is drawn after the rest. Raises UserError for options that do not apply, or a network that does
    not fit the data or cannot be adapted.
    """
    known: Architecture | None = MODELS.get(name) if name in MODELS else None
    if width is not None and not (known and known.has_width):
        wide = [other for other, entry in MODELS.items() if entry.has_width]
        raise UserError(f"model.width={width} only applies to model.name={' | '.join(wide)}, not to {name}")
    with torch.random.fork_rng(devices=[]):
        if generator is not None:
            torch.set_rng_state(generator.get_state())
        if known:
            if options:
                raise UserError(
                    f"model.options={dict(options)} only applies to a model given by its dotted path, "
                    f"not to model.name={name}"
                )
            module: nn.Module = registered(name, known, shape, num_classes, features, num_tokens, norm, width)
        else:
            check_model_name(name)
            module = imported(name, dict(options or {}))
        try:
            adopt(module)
        except ValueError as error:
            raise UserError(f"model.name={name} cannot be trained by workers: {error}") from None
        example = example_inputs(shape, features)
        check_output(name, module, example, num_classes)  # where lazy layers draw their values
        if adapt is not None:
            try:
                adapt(module, example, num_classes)
            except ValueError as error:
                raise UserError(f"model.name={name} {error}") from None
    check_draws(name, module, example)
    adopt_layers(module)
    return module


def registered(
    name: str,
    found: Architecture,
    shape: Shape,
    num_classes: int,
    features: str,
    num_tokens: int,
    norm: str,
    width: int | None,
) -> nn.Module:
    """Return a network of a registered architecture; UserError where it does not take such features."""
    if features not in found.takes:
        fitting = [other for other, entry in MODELS.items() if features in entry.takes]
        raise UserError(
            f"model.name={name} takes {' or '.join(found.takes)}, and the data set has {features}; "
            f"use model.name={' | '.join(fitting)}"
        )
    of_tokens = {"num_tokens": num_tokens} if features == "tokens" else {}
    return found.build(shape, num_classes, norm=norm, width=width, **of_tokens)


def imported(path: str, options: dict[str, Any]) -> nn.Module:
    """Return the user's own network.

    ``path`` is the dotted path of a class, which must be a subclass of nn.Module: nothing else is called. ``options``
    are its keyword arguments. Raises UserError for any other path, and where the class cannot be built or trained.
    """
    module_name, _, attribute = path.rpartition(".")
    found = getattr(import_module(module_name, f"model.name={path}"), attribute, None)
    if found is None:
        raise UserError(f"model.name={path} cannot be imported: {module_name} has no {attribute}")
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UserError(f"model.name={path} is not a class derived from torch.nn.Module; it is not called")
    try:
        module = found(**options)
    except TypeError as error:
        raise UserError(f"model.name={path} with model.options={options} cannot be built: {error}") from None
    return module


def check_output(name: str, module: nn.Module, example: Tensor, num_classes: int) -> None:
    """Raise UserError unless the model takes the example and gives a row of ``num_classes`` numbers per sample."""
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            output = module(example)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"model.name={name} cannot take features of shape {tuple(example.shape[1:])}: "
            f"{' '.join(str(error).split())}"
        ) from None
    finally:
        module.train(was_training)
    if not isinstance(output, Tensor):
        raise UserError(f"model.name={name} gives a {type(output).__name__}, not a tensor of logits")
    if tuple(output.shape) != (2, num_classes):
        raise UserError(f"model.name={name} gives outputs of shape {tuple(output.shape[1:])} for {num_classes} classes")
    if not any(True for _ in module.parameters()):
        raise UserError(f"model.name={name} has no parameters to train")


def check_draws(name: str, module: nn.Module, example: Tensor) -> None:
    """A user's forward may draw through its dropout layers only: other numbers would depend on who trains when."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        with running(Pass(train=True, key=torch.tensor(0))):
            module(example)
        if not torch.equal(before, torch.get_rng_state()):
            raise UserError(
                f"model.name={name} draws random numbers itself; use nn.Dropout layers, which workers can repeat"
            )
