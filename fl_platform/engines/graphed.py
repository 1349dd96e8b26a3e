"""The stacked engine with its gradients replayed from captured graphs (``graphs=true``)."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fl_platform.algorithms.base import Algorithm, has_default
from fl_platform.engines.choice import ENGINES
from fl_platform.engines.ranks import Ranks
from fl_platform.engines.stacked import StackedObjective
from fl_platform.engines.training import Objective
from fl_platform.kernels.graphs import CAPTURES
from fl_platform.models.flat import Stack, Vector

MOST_GRAPHS = 8
"""Shapes that are captured: full and padded batches, with and without statistics, of whole cohorts and last chunks.
Each graph keeps memory of its own."""
PADDED = ("x", "labels", "weights", "mask")


def why_not_graphed(engine: str, device: torch.device, algorithm: Algorithm) -> str | None:
    """What keeps the gradients of a run from being captured, or None."""
    if device.type not in CAPTURES:
        return f"{device.type} has no graphs, CUDA does"
    if engine != "stacked":
        return f"engine={engine}; they are for engine=stacked"
    if not has_default(algorithm, "local_loss"):
        return f"the local loss of {algorithm.name} may read tensors that change from round to round"
    return None


def objective_of(
    engine: str, is_graphed: bool, device: torch.device, algorithm: Algorithm, ranks: Ranks
) -> type[Objective]:
    """How an engine computes gradients; by graphs where that was asked for (``graphs=true``) and is possible.

    Where it is not, the first rank says why.
    """
    if not is_graphed:
        return ENGINES[engine]
    reason = why_not_graphed(engine, device, algorithm)
    if reason is None:
        return GraphedObjective
    if ranks.rank == 0:
        print(f"graphs=true has no effect: {reason}", file=sys.stderr, flush=True)
    return ENGINES[engine]


class GraphedObjective(StackedObjective):
    """Gradients of a stack by one launch: inputs are copied to fixed places, the graph is replayed, results copied.

    Batches that are padded are padded to the longest of the round, so that few shapes occur. A shape that cannot be
    captured, and those after the first few, are computed without a graph; one line on stderr says so.
    """

    def _compute(
        self, params: Stack | Vector, buffers: Stack | Vector, keys: Tensor, updates_statistics: bool
    ) -> tuple[Stack, Tensor]:
        inputs = {"params": params, "buffers": buffers, "keys": keys, "x": self._x, "labels": self._labels}
        if self._mask is not None and self._row_weights is not None:
            inputs |= {"weights": self._row_weights, "mask": self._mask}
        shapes = {name: self._fixed_shape(name, tensor) for name, tensor in inputs.items()}
        key = (updates_statistics, *shapes.items())
        graphs = self._training.graphs
        if key not in graphs:
            graphs[key] = self._captured(inputs, shapes, updates_statistics)
        graph: Captured | None = graphs[key]
        if graph is None:
            return super()._compute(params, buffers, keys, updates_statistics)
        gradient, loss = graph.run(inputs)
        if updates_statistics:
            buffers.copy_(graph.places["buffers"])
        size = len(self._labels)
        return self._training.empty("gradient", size, self._work).copy_(gradient), loss.clone()

    def _fixed_shape(self, name: str, tensor: Tensor) -> tuple[int, ...]:
        if self._mask is None or name not in PADDED:
            return tuple(tensor.shape)
        return (len(tensor), self._plan.indices.shape[2], *tensor.shape[2:])

    def _captured(self, inputs: dict[str, Tensor], shapes: dict[str, Any], updates: bool) -> "Captured | None":
        """A graph for these shapes; None where there are enough, or one cannot be captured."""
        if len(self._training.graphs) >= MOST_GRAPHS:
            if len(self._training.graphs) == MOST_GRAPHS:
                print(f"graphs=true: shapes after the first {MOST_GRAPHS} are computed without", file=sys.stderr)
            return None
        places = {name: tensor.new_zeros(shapes[name]) for name, tensor in inputs.items()}
        twin = copy.copy(self)
        twin._x, twin._labels, twin._state = places["x"], places["labels"], {}
        twin._mask, twin._row_weights = places.get("mask"), places.get("weights", self._row_weights)
        if twin._mask is None:
            twin._row_weights = None

        def work() -> tuple[Stack, Tensor]:
            return StackedObjective._compute(twin, places["params"], places["buffers"], places["keys"], updates)

        try:
            return Captured(places, work, inputs)
        except RuntimeError as error:
            print(f"graphs=true: not captured, computed without: {' '.join(str(error).split())}", file=sys.stderr)
            return None


class Captured:
    """A captured gradient, and the places that it reads."""

    def __init__(
        self, places: dict[str, Tensor], work: Callable[[], tuple[Stack, Tensor]], inputs: dict[str, Tensor]
    ) -> None:
        self.places = places
        self._fill(inputs)
        self._found: tuple[Stack, Tensor]
        self._replay, self._found = CAPTURES[places["params"].device.type](work)

    def _fill(self, inputs: dict[str, Tensor]) -> None:
        """Copy inputs to their places; what is shorter than its place is masked there."""
        for name, tensor in inputs.items():
            place = self.places[name]
            if name in ("weights", "mask") and place.shape != tensor.shape:
                place.zero_()
            place[tuple(slice(length) for length in tensor.shape)].copy_(tensor)

    def run(self, inputs: dict[str, Tensor]) -> tuple[Stack, Tensor]:
        """Gradients and losses for the inputs; both are written over by the next run."""
        self._fill(inputs)
        self._replay()
        return self._found
