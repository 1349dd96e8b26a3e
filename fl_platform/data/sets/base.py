"""The contract of a data set: one class that says what its samples are and how they are loaded."""

import math
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from fl_platform.config.registry import DATASETS
from fl_platform.data.augmentation import crop_and_flip
from fl_platform.data.samples import Kind, Samples
from fl_platform.errors import UserError, unknown_name


class Dataset:
    """A data set. ``class Mine(Dataset, name="mine", label="Mine")`` makes ``data.name=mine`` available.

    A subclass sets ``num_classes``, ``shape`` and whatever differs from the defaults below, and has a ``load``. The
    first paragraph of its docstring is its description. A subclass without ``name=`` is not registered.
    """

    name: str = ""
    label: str = ""
    """As printed in tables and figures; the name where none is given."""
    description: str = ""
    """The first paragraph of the docstring, on one line and without its full stop."""
    num_classes: int
    shape: tuple[int, ...]
    """Of one sample's features."""
    features: Kind = "images"
    num_tokens: int = 0
    """Number of different ids; of token ids only."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    """Images (in [0, 1]) and numbers are normalised with these: one value, or one per entry of the first axis."""
    crop_padding: int = 0
    flip: bool = False
    """Training images are padded by that many pixels and cropped at random, and mirrored at random."""
    folders: tuple[str, ...] = ()
    """Alternative locations of the files below a data root; empty for a data set that needs no files."""
    licence: str = ""
    num_owners: int | None = None
    """How many owners the training samples have, where that is known before loading them."""
    partition: str = "dirichlet"
    default_model: str = "mlp"
    num_rounds: int = 500
    evaluation_every: int = 1
    targets: tuple[float, ...] = ()
    """These five are the defaults of keys that are left open."""

    def __init_subclass__(cls, name: str | None = None, label: str = "") -> None:
        super().__init_subclass__()
        if name is None:
            return
        cls.name, cls.label = name, label or name
        cls.description = " ".join((cls.__doc__ or "").split("\n\n")[0].split()).removesuffix(".")
        cls._check()
        DATASETS.add(name, cls(), cls)

    @classmethod
    def _check(cls) -> None:
        """Raise UserError for a description that contradicts itself."""
        about = f"data.name={cls.name}"
        for field in ("num_classes", "shape"):
            if not hasattr(cls, field):
                raise UserError(f"{about}: class {cls.__qualname__} sets no {field}")
        if cls.load is Dataset.load:
            raise UserError(
                f"{about}: class {cls.__qualname__} has no method load(folder), which returns (train, test)"
            )
        if not (isinstance(cls.shape, tuple) and cls.shape and all(_is_count(size) for size in cls.shape)):
            raise UserError(f"{about}: shape={cls.shape} is not a tuple of positive integers, such as (13,)")
        if not _is_count(cls.num_classes):
            raise UserError(f"{about}: num_classes={cls.num_classes} is not a positive integer")
        if cls.features not in get_args(Kind):
            raise unknown_name(f"{about}: features", cls.features, get_args(Kind))
        if (cls.features == "tokens") != (cls.num_tokens > 0):
            raise UserError(f"{about}: num_tokens={cls.num_tokens} with features={cls.features}; only tokens have it")
        if cls.features == "images" and len(cls.shape) != 3:
            raise UserError(f"{about}: shape={cls.shape} is not (channels, height, width); images have these three")
        for field in ("mean", "std"):
            values = getattr(cls, field)
            if not isinstance(values, tuple | list):
                raise UserError(f"{about}: {field}={values} is not a tuple of numbers, such as ({values},)")
            are_numbers = all(isinstance(value, Real) and math.isfinite(value) for value in values)
            if len(values) not in (1, cls.shape[0]) or not are_numbers or (field == "std" and min(values) <= 0):
                expected = "one positive number" if field == "std" else "one number"
                raise UserError(f"{about}: {field}={values} is not {expected}, or {cls.shape[0]} of them")
        if not isinstance(cls.targets, tuple | list):
            raise UserError(f"{about}: targets={cls.targets} is not a tuple of accuracies, such as (0.9,)")
        if cls.crop_padding != 0 and not _is_count(cls.crop_padding):
            raise UserError(f"{about}: crop_padding={cls.crop_padding} is not a number of pixels, 0 or more")

    def load(self, folder: Path) -> tuple[Samples, Samples]:
        """Return (train, test).

        ``folder`` is the folder that was found, or the data root when ``folders`` is empty.
        """
        raise NotImplementedError

    def statistics(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return mean and standard deviation for the normalisation; a table may measure its own."""
        return self.mean, self.std

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Return float64 tensors that broadcast, so that ``features * scale + shift`` normalises stored features."""
        unit = 255 if self.features == "images" else 1
        means, stds = (
            torch.tensor(values, dtype=torch.float64).view(-1, *[1] * (len(self.shape) - 1))
            for values in self.statistics()
        )
        return 1 / (unit * stds), -means / stds

    @property
    def is_augmented(self) -> bool:
        """Whether training samples are changed at random."""
        return bool(self.crop_padding or self.flip) or type(self).augment is not Dataset.augment

    def augment(self, features: Tensor, keys: Tensor, count: int) -> Tensor:
        """Return stored training features [n, ...], changed at random: ``count`` samples for each of ``keys``.

        What is drawn must depend on the keys alone (``fl_platform.noise``), so that both engines draw the same.
        """
        return crop_and_flip(features, keys, count, self.crop_padding, flip=self.flip)

    def fault(self, samples: Samples) -> str | None:
        """Describe how samples differ from this description; None if they agree."""
        return samples.fault(self.features, self.shape, self.num_classes, self.num_tokens)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
