"""CINIC-10 (Darlow et al. 2018) for those who have its folder of PNG files; it is not fetched."""

from pathlib import Path

import numpy as np

from fl_platform.data import locations
from fl_platform.data.pictures import Listing, decoded
from fl_platform.data.readers import DamagedFile, Pair
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class Cinic10(Dataset, name="cinic10", label="CINIC-10"):
    """32x32 colour images of CIFAR-10's classes, most from ImageNet; its folder valid is left out; not fetched."""

    num_classes = 10
    shape = (3, 32, 32)
    # README.md of github.com/BayesWatch/cinic-10, rounded; its LICENSE is the MIT one and does not name the images
    mean = (0.4789, 0.4723, 0.4305)
    std = (0.2421, 0.2383, 0.2587)
    folders = ("CINIC-10", "cinic-10", "cinic10")
    licence = "MIT (images of CIFAR-10 and ImageNet have terms of their own)"
    crop_padding = 4
    flip = True
    default_model = "lenet5"
    num_rounds = 1000
    targets = (0.45, 0.55)

    def load(self, folder: Path) -> Pair:
        listings = list_part(folder / "train"), list_part(folder / "test")
        arrays = decoded(folder, listings, side=32, store=locations.cache_directory() / "decoded", name="cinic10")
        train, test = (
            Samples.from_arrays(images, np.array([label for _, label in listing]))
            for images, listing in zip(arrays, listings, strict=True)
        )
        return train, test


def list_part(folder: Path) -> Listing:
    """List the images of one part, a folder per class; raises ``DamagedFile`` for a class without any."""
    listing: Listing = []
    for label, name in enumerate(CLASSES):
        files = sorted((folder / name).glob("*.png"))
        if not files:
            raise DamagedFile(folder / name, "holds no .png file")
        listing += [(file, label) for file in files]
    return listing
