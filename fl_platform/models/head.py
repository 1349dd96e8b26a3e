"""A projection head between encoder and classifier, the network MOON's authors train."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from fl_platform.models.layers import Features, Pass, running


def add_projection_head(module: nn.Module, example: Tensor, num_classes: int, width: int) -> None:
    """Put Linear(w, w) - ReLU - Linear(w, width) before a classifier of its own; its output is the representation.

    The head replaces the last linear layer; w is the length of its input. ``example`` is two inputs. Raises ValueError
    where that layer is not the classifier.
    """
    linear = [(path, child) for path, child in module.named_modules() if path and isinstance(child, nn.Linear)]
    if not linear:
        raise ValueError("no layer inside it is an nn.Linear")
    path, classifier = linear[-1]
    if classifier.out_features != num_classes:
        raise ValueError(f"its last linear layer, {path}, gives {classifier.out_features} numbers, not the logits")
    inputs = classifier.in_features
    head = OrderedDict(
        hidden=nn.Linear(inputs, inputs),
        relu=nn.ReLU(),
        projection=nn.Linear(inputs, width),
        features=Features(),
        classifier=nn.Linear(width, num_classes, bias=classifier.bias is not None),
    )
    module.set_submodule(path, nn.Sequential(head))
    if features_shape(module, example) != (2, width):
        raise ValueError(f"it does not call its last linear layer, {path}, on one vector per sample")


def features_shape(module: nn.Module, example: Tensor) -> tuple[int, ...] | None:
    """Shape of the representation of two inputs; None where the module cannot be run or marks none."""
    with torch.no_grad(), running(Pass(train=False)) as probe:
        try:
            module(example)
        except (AttributeError, RuntimeError, TypeError):  # a forward that reads the layer's weight itself
            return None
    return None if probe.features is None else tuple(probe.features.shape)
