"""Local training and evaluation of a chain of linear layers, ReLU and BatchNorm as machine code, for one worker.

The plain twins are autograd (``StackedObjective.gradient``), the loop over local steps (``LocalTraining``) and an
evaluation layer by layer; sums are parted elsewhere, so results differ by rounding. ``descend`` has the bits of steps
one by one with ``gradient``, and every method without a loss of its own has its gradients from here, so those that
reduce to one another have equal bits.

What it saves: a library rearranges the factors of every product and checks its arguments, autograd and nn.Module make
a node and a call per operation, and a step of SGD reads each gradient from memory again. For batches of local training
that takes as long as the arithmetic. Python's lock is free meanwhile, so threads train side by side.

It takes float32, on x86 processors with AVX2; elsewhere, and for other networks, the plain twins run.
"""

from collections.abc import Callable, Sequence
from ctypes import Array, addressof, c_int64
from dataclasses import dataclass

import torch
from torch import Tensor

from fl_platform.kernels.addresses import integers
from fl_platform.kernels.perceptron_layers import Chain
from fl_platform.models.flat import Vector
from fl_platform.models.network import Network

COMPILED = "fl_platform.kernels.compiled_perceptron"
SAMPLES = 64
"""Samples of an evaluation that go through all layers before the next ones."""


@dataclass(frozen=True)
class Batches:
    """Batches of samples as compiled code takes them."""

    rows: Sequence[Tensor]  # which, as the labels, must live as long as the table
    labels: Sequence[Tensor]
    table: Array[c_int64]  # addresses of rows and labels, and the number of samples, of each batch
    room: int  # samples of the longest

    def __len__(self) -> int:
        return len(self.rows)


class Perceptron:
    """Cross-entropy of a network of linear layers, ReLU and BatchNorm, as a function of its flat parameters."""

    def __init__(self, network: Network, chain: Chain, train: Callable[..., None], logits: Callable[..., None]) -> None:
        self.chain, self._train, self._logits = chain, train, logits
        self._rows, self._rates = torch.tensor(chain.rows), torch.tensor(chain.rates)
        self._tables = (self._rows.data_ptr(), self._rates.data_ptr(), len(chain.rows))
        self._work = torch.empty(0)
        self.dim = network.parameters.dim
        self._sizes = (self.dim, network.buffers.dim)

    @staticmethod
    def of(network: Network, dtype: torch.dtype) -> "Perceptron | None":
        """The network as a perceptron; None for others, other types, and processors that it is not compiled for."""
        chain = Chain.of(network) if dtype == torch.float32 else None
        if chain is None:
            return None
        from fl_platform.kernels import machine_code  # llvmlite, which other networks do not need

        if machine_code.LANES < 8:
            return None
        train = machine_code.function(COMPILED, "train", "nnnnnnnnnnnnnx")
        return Perceptron(network, chain, train, machine_code.function(COMPILED, "logits", "nnnnnnnnnn"))

    def gradient(self, params: Vector, buffers: Vector | None, x: Tensor, labels: Tensor, into: Vector) -> Tensor:
        """Write the gradient of a batch's mean loss in training mode; returns the loss.

        Running statistics, if given, are updated.
        """
        return self._steps(params, buffers, [x], [labels], 0.0, into)[0]

    def descend(
        self, params: Vector, buffers: Vector, batches: Sequence[Tensor], labels: Sequence[Tensor], rate: float
    ) -> Tensor:
        """Take a step of SGD per batch, writing parameters and running statistics in place; returns the losses."""
        return self._steps(params, buffers, batches, labels, rate, None)

    def _steps(
        self,
        params: Vector,
        buffers: Vector | None,
        batches: Sequence[Tensor],
        labels: Sequence[Tensor],
        rate: float,
        into: Vector | None,
    ) -> Tensor:
        if not all(
            vector.is_contiguous() for vector in (params if into is None else into, buffers) if vector is not None
        ):
            raise RuntimeError("a vector that is written to must lie in one piece")
        params, into = self.as_params(params), None if into is None else self.as_params(into)
        statistics, loaded = self.statistics(buffers), self.load(batches, labels)
        target, losses = 0 if into is None else into.data_ptr(), torch.empty(len(loaded))
        self.run(params.data_ptr(), statistics, loaded, range(len(loaded)), target, losses.data_ptr(), rate)
        return losses

    def load(self, batches: Sequence[Tensor], labels: Sequence[Tensor]) -> "Batches":
        """Batches for ``run``; RuntimeError for those of another shape or type."""
        rows, classes = [self._as_rows(x) for x in batches], [y.contiguous() for y in labels]
        counts = [x.shape[0] for x in rows]  # len() of a tensor takes ten times as long
        if counts != [y.shape[0] for y in classes]:
            raise RuntimeError("a batch has another number of labels than of samples")
        places = ((x.data_ptr(), y.data_ptr(), count) for x, y, count in zip(rows, classes, counts, strict=True))
        return Batches(rows, classes, integers(number for batch in places for number in batch), max(counts))

    def run(
        self, params: int, statistics: int, loaded: "Batches", which: range, into: int, losses: int, rate: float
    ) -> None:
        """Steps of SGD on some of the batches, or the gradient of one; vectors are given as addresses, 0 for none."""
        chain, room = self.chain, loaded.room
        size = room * (chain.places + 2 * chain.widest) + 2 * chain.widest + chain.moments
        if self._work.shape[0] < size:
            self._work = torch.empty(size)
        batches, work = addressof(loaded.table) + 24 * which.start, self._work.data_ptr()
        self._train(
            *self._tables,
            *(params, statistics, batches, len(which), into, losses, work),
            *(room, chain.places, chain.widest, rate),
        )

    def logits(self, params: Vector, buffers: Vector, x: Tensor) -> Tensor:
        """The network's outputs in evaluation mode; threads may share the perceptron."""
        rows, params, buffers = self._as_rows(x), self.as_params(params), self._as_vector(buffers, 1)
        found, work = torch.empty(len(rows), self.chain.classes), torch.empty(SAMPLES * self.chain.places)
        self._logits(
            *self._tables,
            params.data_ptr(),
            buffers.data_ptr(),
            rows.data_ptr(),
            len(rows),
            found.data_ptr(),
            work.data_ptr(),
            SAMPLES,
        )
        return found

    def as_params(self, params: Vector) -> Vector:
        """Parameters that lie side by side; RuntimeError for other vectors."""
        return self._as_vector(params, 0)

    def statistics(self, buffers: Vector | None) -> int:
        """The address of running statistics; 0 where there are none."""
        return 0 if buffers is None or not self.chain.moments else self._as_vector(buffers, 1).data_ptr()

    def _as_vector(self, values: Tensor, kind: int) -> Vector:
        """Parameters (0) or buffers (1) that lie side by side; RuntimeError for others, which would be read wrongly."""
        if values.numel() != self._sizes[kind] or values.dtype != torch.float32:
            raise RuntimeError(
                f"{values.numel()} numbers of {values.dtype} given; the network has {self._sizes[kind]} "
                f"{('parameters', 'buffers')[kind]} of torch.float32"
            )
        return values.contiguous()

    def _as_rows(self, x: Tensor) -> Tensor:
        """A batch with the numbers of a sample side by side."""
        rows = x.flatten(1).contiguous()
        if rows.shape[1] != self.chain.inputs or rows.dtype != torch.float32:
            raise RuntimeError(
                f"a sample has {rows.shape[1]} numbers of {rows.dtype}; the first layer takes "
                f"{self.chain.inputs} of torch.float32"
            )
        return rows
