"""Local training and evaluation of a chain of linear layers, ReLU and BatchNorm as machine code, for one worker.

The plain twins are autograd (``StackedObjective.gradient``), the loop over local steps (``LocalTraining``) and an
evaluation layer by layer; sums are parted elsewhere, so results differ by rounding. ``descend`` has the bits of steps
one by one with ``gradient``, and every method without a loss of its own has its gradients from here, so those that
reduce to one another have equal bits.

What it saves: a library rearranges the factors of every product and checks its arguments, autograd and nn.Module make
a node and a call per operation, and a step of SGD reads each gradient from memory again. For batches of local training
that takes as long as the arithmetic. Python's lock is free meanwhile, so threads train side by side. An evaluation has
its samples side by side, so that its products need no sums across lanes, and counts losses and hits as well.

Gain of evaluations (``python -m benchmarks.kernels --only "perceptron, eval"``, Zen 5, CPU time of rounds with and
without in turn): 14 % of a round of W1, 31 ms for 36, with BatchNorm 17 %.

It takes float32, on x86 processors with AVX2; elsewhere, and for other networks, the plain twins run.
"""

from collections.abc import Callable, Sequence
from ctypes import Array, addressof, c_int64
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fl_platform.kernels.addresses import integers
from fl_platform.kernels.perceptron_layers import Chain
from fl_platform.models.flat import Stack, Vector
from fl_platform.models.network import Network

SAMPLES = 64
"""Samples of an evaluation that go through all layers together: what they are and what comes of them stays in the
second cache."""


@dataclass(frozen=True)
class Batches:
    """Batches of samples as compiled code takes them."""

    rows: Tensor  # which, as the labels, must live as long as the table
    labels: Tensor
    table: Array[c_int64]  # addresses of samples and labels, and the number of samples, of each batch
    room: int  # samples of the longest

    def __len__(self) -> int:
        return self.rows.shape[0]


class Perceptron:
    """Cross-entropy of a network of linear layers, ReLU and BatchNorm, as a function of its flat parameters."""

    def __init__(self, network: Network, chain: Chain, function: Callable[[str, str], Callable[..., None]]) -> None:
        self.chain, self._function, self._scores = chain, function, function("compiled_scores", "scores")
        self._rows, self._rates = torch.tensor(chain.rows), torch.tensor(chain.rates)
        self.tables = (self._rows.data_ptr(), self._rates.data_ptr(), len(chain.rows))
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
        return Perceptron(network, chain, machine_code.function)

    @cached_property
    def _train(self) -> Callable[..., None]:
        return self._function("compiled_perceptron", "train")

    def compile(self) -> None:
        """Compile what trains, so that the first round does not."""
        _ = self._train

    def gradient(self, params: Vector, buffers: Vector | None, x: Tensor, labels: Tensor, into: Vector) -> Tensor:
        """Write the gradient of a batch's mean loss in training mode; returns the loss.

        Running statistics, if given, are updated.
        """
        loaded, loss = self._load(x.unsqueeze(0), labels.unsqueeze(0), [x.shape[0]]), torch.empty(())
        self._check_written(into, buffers)
        params, target = self.as_params(params), self.as_params(into).data_ptr()
        self._run(params.data_ptr(), self._statistics(buffers), loaded, target, loss.data_ptr(), 0.0)
        return loss

    def descend(
        self, params: Vector, buffers: Vector, x: Tensor, labels: Tensor, counts: Sequence[int], rate: float
    ) -> Tensor:
        """Take a step of SGD per batch, writing parameters and running statistics in place; returns the losses.

        Batches are given as those of ``_load``.
        """
        loaded, losses = self._load(x, labels, counts), torch.empty(len(counts))
        self._check_written(params, buffers)
        params, statistics = self.as_params(params), self._statistics(buffers)
        self._run(params.data_ptr(), statistics, loaded, 0, losses.data_ptr(), rate)
        return losses

    @staticmethod
    def _check_written(vector: Vector, buffers: Vector | None) -> None:
        if not vector.is_contiguous() or not (buffers is None or buffers.is_contiguous()):
            raise RuntimeError("a vector that is written to must lie in one piece")

    def _load(self, x: Tensor, labels: Tensor, counts: Sequence[int]) -> Batches:
        """Batches of the first ``counts`` samples of each x (batches, samples, ...) and labels (batches, samples).

        RuntimeError for those of another shape or type.
        """
        rows, labels, length = self._as_rows(x, 2), labels.contiguous(), x.shape[1]
        if labels.shape != x.shape[:2] or len(counts) != x.shape[0] or max(counts) > length:
            raise RuntimeError("a batch has another number of labels than of samples, or fewer than are to be taken")
        first, classes, size = rows.data_ptr(), labels.data_ptr(), 4 * length * self.chain.inputs
        table = ((first + size * k, classes + 8 * length * k, count) for k, count in enumerate(counts))
        return Batches(rows, labels, integers(number for batch in table for number in batch), max(counts))

    def _run(self, params: int, statistics: int, loaded: Batches, into: int, losses: int, rate: float) -> None:
        """Steps of SGD in place on all batches, or the gradient of one; vectors are given as addresses, 0 for none."""
        chain, room = self.chain, loaded.room
        vectors, work = (params, params, statistics), self.working_memory(room)
        batches = (addressof(loaded.table), len(loaded))
        self._train(*self.tables, *vectors, *batches, into, losses, work, room, chain.places, chain.widest, rate)

    def rows_of(self, stack: Stack | None, kind: int) -> tuple[int, int]:
        """The address of a stack's rows, parameters (0) or buffers (1), and how many bytes lie from one to the next.

        RuntimeError for others than the network's. Zeros for none, and for buffers that it does not have.
        """
        if stack is None or (kind == 1 and not self.chain.moments):
            return 0, 0
        if stack.stride(1) != 1:
            raise RuntimeError("the numbers of a row must lie side by side")
        self._as_vector(stack[0], kind)
        return stack.data_ptr(), 4 * stack.stride(0)

    def working_memory(self, room: int) -> int:
        """The address of what the layers of so many samples need."""
        chain = self.chain
        size = room * (chain.places + 2 * chain.widest) + 2 * chain.widest + chain.moments
        if self._work.shape[0] < size:
            self._work = torch.empty(size)
        return self._work.data_ptr()

    def scores(
        self, params: Vector, buffers: Vector, x: Tensor, labels: Tensor, num_classes: int, keeps_logits: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Loss of samples in evaluation mode, hits by class and number by class, in float64; the logits if wanted.

        Threads may share the perceptron.
        """
        chain, rows, labels = self.chain, self._as_rows(x, 1), labels.contiguous()
        if labels.shape != rows.shape[:1] or labels.dtype != torch.int64:
            raise RuntimeError(f"{labels.numel()} labels of {labels.dtype} given for {rows.shape[0]} samples")
        params, buffers = self.as_params(params), self._as_vector(buffers, 1)
        sums = torch.zeros(1 + 2 * num_classes, dtype=torch.float64)
        logits = torch.empty(rows.shape[0], chain.classes) if keeps_logits else None
        work = torch.empty(SAMPLES * (3 + chain.inputs + chain.places))
        data = (params, buffers, rows, labels)
        self._scores(
            *(*self.tables, *(tensor.data_ptr() for tensor in data), rows.shape[0], num_classes, sums.data_ptr()),
            *(0 if logits is None else logits.data_ptr(), work.data_ptr(), SAMPLES),
        )
        return sums, logits

    def as_params(self, params: Vector) -> Vector:
        """Parameters that lie side by side; RuntimeError for other vectors."""
        return self._as_vector(params, 0)

    def _statistics(self, buffers: Vector | None) -> int:
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

    def _as_rows(self, x: Tensor, dim: int) -> Tensor:
        """Samples with the numbers of each side by side; they have so many dimensions in front."""
        rows = x.flatten(dim).contiguous()
        if rows.shape[dim] != self.chain.inputs or rows.dtype != torch.float32:
            raise RuntimeError(
                f"a sample has {rows.shape[dim]} numbers of {rows.dtype}; the first layer takes "
                f"{self.chain.inputs} of torch.float32"
            )
        return rows
