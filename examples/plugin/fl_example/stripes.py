"""Stripes: made-up grey images whose class is the direction of their stripes."""

from pathlib import Path

import numpy as np

from fl_platform.data.datasets import Dataset, register
from fl_platform.data.image_set import ImageSet

NUM_CLASSES, SIDE = 4, 16


def make(count: int, seed: int) -> ImageSet:
    """Draw ``count`` noisy images."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(NUM_CLASSES, size=count)
    angles = labels[:, None, None] * np.pi / NUM_CLASSES
    rows, columns = np.mgrid[:SIDE, :SIDE]
    phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
    waves = np.sin(1.3 * (rows * np.sin(angles) + columns * np.cos(angles)) + phase)
    pixels = 128 + 60 * waves + rng.normal(0, 25, (count, SIDE, SIDE))
    return ImageSet.from_arrays(pixels.clip(0, 255).astype(np.uint8)[:, None], labels)


def load(root: Path) -> tuple[ImageSet, ImageSet]:
    """Training and test images; a data set with files would read them below ``root``."""
    return make(2000, seed=1), make(500, seed=2)


register(
    Dataset(
        name="stripes",
        description="stripes in four directions, made up",
        num_classes=NUM_CLASSES,
        shape=(1, SIDE, SIDE),
        mean=(0.5,),
        std=(0.22,),
        load=load,
        default_model="small_cnn",
        num_rounds=30,
        targets=(0.9,),
        label="Stripes",
    )
)
