"""Work of fixed shapes captured once on a device and replayed as one launch. Its plain twin is calling the function.

Gain: not measured, no GPU has run it. It is off unless asked for (``graphs=true``), and is meant for networks so small
that starting kernels takes longer than running them.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

Found = TypeVar("Found")
Capture = Callable[[Callable[[], Found]], tuple[Callable[[], None], Found]]

WARM_UP = 3  # as PyTorch asks: libraries choose algorithms and allocate in the first calls


def capture_cuda(work: Callable[[], Found]) -> tuple[Callable[[], None], Found]:
    """Capture ``work`` in a CUDA graph; returns (replay, what it returned, which every replay writes again).

    The tensors it reads must stay where they are. Raises RuntimeError where it does something that cannot be captured,
    such as reading a value.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    return graph.replay, found


CAPTURES: dict[str, Capture] = {"cuda": capture_cuda}  # type: ignore[type-arg]
"""How work is captured, by type of device."""
