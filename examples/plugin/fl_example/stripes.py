"""Stripes: made-up grey images whose class is the direction of their stripes."""

from pathlib import Path

import numpy as np

from fl_platform import Dataset, Samples


class Stripes(Dataset, name="stripes", label="Stripes"):
    """Stripes in four directions, made up."""

    num_classes = 4
    shape = (1, 16, 16)  # channels, height, width
    mean = (0.5,)
    std = (0.22,)
    default_model = "small_cnn"
    num_rounds = 30
    targets = (0.9,)

    def load(self, folder: Path) -> tuple[Samples, Samples]:
        """Training and test images; a data set with files would read them in ``folder``."""
        return self.draw(2000, seed=1), self.draw(500, seed=2)

    def draw(self, count: int, seed: int) -> Samples:
        """Draw ``count`` noisy images."""
        rng = np.random.default_rng(seed)
        labels = rng.integers(self.num_classes, size=count)
        angles = labels[:, None, None] * np.pi / self.num_classes
        rows, columns = np.mgrid[:16, :16]
        phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
        waves = np.sin(1.3 * (rows * np.sin(angles) + columns * np.cos(angles)) + phase)
        pixels = 128 + 60 * waves + rng.normal(0, 25, (count, 16, 16))
        return Samples.from_arrays(pixels.clip(0, 255).astype(np.uint8)[:, None], labels)
