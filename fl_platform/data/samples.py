"""Labelled samples in memory, what may be wrong with them, and hold-out by class."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fl_platform.errors import UserError

Kind = Literal["images", "numbers", "tokens"]
"""What features are: uint8 pixels [C, H, W], floating-point numbers of any shape, or integer ids [T]."""


@dataclass(frozen=True)
class Samples:
    """Features [n, ...] of any dtype and shape, and their classes (int64 [n]).

    ``owners`` (int64 [n]) says whom each sample belongs to by nature, such as the writer of a letter; owners are
    numbered from 0. Samples of a test set may have owners, too: they are the held-out samples of the same ones.
    """

    features: Tensor
    labels: Tensor
    owners: Tensor | None = None

    @staticmethod
    def from_arrays(features: NDArray[Any], labels: ArrayLike, owners: ArrayLike | None = None) -> "Samples":
        """Wrap NumPy arrays; the features share memory with the array where torch can read it as it is.

        Raises UserError for features that are not numbers, and for labels and owners that are not whole numbers.
        """
        given = np.asarray(features)
        if given.dtype.kind not in "biuf":
            raise UserError(f"Samples.from_arrays: features are {given.dtype}; they must be numbers")
        readable = np.require(given, given.dtype.newbyteorder("="), ["C", "W"])
        owned = None if owners is None else torch.from_numpy(whole_numbers("Samples.from_arrays: owners", owners))
        classes = whole_numbers("Samples.from_arrays: labels", labels)
        return Samples(torch.from_numpy(readable), torch.from_numpy(classes), owned)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_owners(self) -> int:
        """One more than the largest owner; 0 without owners."""
        return 0 if self.owners is None or not len(self.owners) else int(self.owners.max()) + 1

    def subset(self, indices: NDArray[np.int64]) -> "Samples":
        """A copy of the samples at ``indices``, in that order."""
        chosen = torch.from_numpy(indices)
        return Samples(self.features[chosen], self.labels[chosen], None if self.owners is None else self.owners[chosen])

    def fault(self, kind: Kind, shape: tuple[int, ...], num_classes: int, num_tokens: int = 0) -> str | None:
        """Describe how the samples differ from a description; None if they agree with it."""
        found = tuple(self.features.shape[1:])
        dtypes = {"images": "torch.uint8", "numbers": "a floating dtype", "tokens": "an integer dtype"}
        if not _is_dtype_of(kind, self.features.dtype) or found != shape:
            return f"features are {self.features.dtype} of shape {found}, expected {dtypes[kind]} of shape {shape}"
        for name, values in (("labels", self.labels), ("owners", self.owners)):
            if values is not None and (values.dtype != torch.int64 or values.shape != self.features.shape[:1]):
                given = tuple(values.shape)
                return f"{name} are {values.dtype} of shape {given}, expected torch.int64, one for each sample"
        if len(self) == 0:
            return "there is no sample"
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= num_classes:
            return f"label {low if low < 0 else high} is outside 0..{num_classes - 1}"
        if self.owners is not None and int(self.owners.min()) < 0:
            return f"owner {int(self.owners.min())} is negative; owners are numbered from 0"
        return self._fault_of_values(kind, num_tokens)

    def _fault_of_values(self, kind: Kind, num_tokens: int) -> str | None:
        if kind == "numbers":
            is_bad = ~torch.isfinite(self.features).flatten(1).all(1)
            if bool(is_bad.any()):
                first = int(is_bad.int().argmax())
                return f"{int(is_bad.sum())} samples have values that are not finite; the first is sample {first}"
        if kind == "tokens":
            low, high = int(self.features.min()), int(self.features.max())
            if low < 0 or high >= num_tokens:
                return f"token {low if low < 0 else high} is outside 0..{num_tokens - 1}"
        return None


def whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Values as int64, such as labels; UserError, which begins with ``name``, for text, fractions or missing ones."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise UserError(f"{name} are no array: {error}") from None
    if given.dtype.kind not in "biuf":
        raise UserError(f"{name} are {given.dtype}; they must be whole numbers from 0 on")
    if given.dtype.kind == "f" and not (np.isfinite(given) & (given == np.floor(given))).all():
        wrong = given[~(np.isfinite(given) & (given == np.floor(given)))].flat[0]
        raise UserError(f"{name} contain {wrong:g}; they must be whole numbers from 0 on")
    return given.astype(np.int64)


def shown_types(found: object) -> str:
    """What code of the user's returned, by its types."""
    if isinstance(found, tuple):
        return f"({', '.join(type(part).__name__ for part in found)})"
    return type(found).__name__


def _is_dtype_of(kind: Kind, dtype: torch.dtype) -> bool:
    if kind == "images":
        return dtype == torch.uint8
    if kind == "numbers":
        return dtype.is_floating_point
    return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool


def hold_out(
    labels: NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hold out ``count`` samples, each class in proportion to its size; returns ascending indices (kept, held out)."""
    sizes = np.bincount(labels)
    exact = sizes * count / max(len(labels), 1)
    shares = np.floor(exact).astype(np.int64)
    largest_remainders = np.argsort(shares - exact, kind="stable")[: count - int(shares.sum())]
    shares[largest_remainders] += 1
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled within
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_held = rank < np.repeat(shares, sizes)
    return np.sort(order[~is_held]), np.sort(order[is_held])
