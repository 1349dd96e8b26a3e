"""Handwritten letters and digits for those who have the files: EMNIST (Cohen et al. 2017), and LEAF's FEMNIST.

Neither is fetched. EMNIST is read from the idx files of its ``gzip.zip``, in the folder where torchvision keeps them;
FEMNIST from the JSON files that LEAF's ``preprocess.sh`` writes, whose users are the owners of the samples. Both are
made from NIST's Special Database 19, whose catalogue entry names www.nist.gov/open/license as its terms.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_platform.data.readers import DamagedFile, Pair, read_idx
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset


class Emnist(Dataset, name="emnist", label="EMNIST"):
    """28x28 handwritten digits and letters, EMNIST's balanced split of 47 classes; not fetched."""

    num_classes = 47
    shape = (1, 28, 28)
    # as public code that trains on this split has them; published files were not at hand to compute them
    mean = (0.1751,)
    std = (0.3332,)
    folders = ("EMNIST/raw", "EMNIST/raw/gzip", "gzip")
    licence = "www.nist.gov/open/license (derived from NIST Special Database 19)"
    targets = (0.6, 0.7, 0.8)
    split = "balanced"
    first_label = 0

    def load(self, folder: Path) -> Pair:
        train, test = (self._part(folder, part) for part in ("train", "test"))
        return train, test

    def _part(self, folder: Path, part: str) -> Samples:
        images, labels = (
            read_idx(folder / f"emnist-{self.split}-{part}-{kind}-ubyte", md5=None)
            for kind in ("images-idx3", "labels-idx1")
        )
        upright = np.ascontiguousarray(images.swapaxes(1, 2))  # the published files have rows and columns exchanged
        return Samples.from_arrays(upright[:, None], labels.astype(np.int64) - self.first_label)


class EmnistLetters(Emnist, name="emnist_letters", label="EMNIST letters"):
    """28x28 handwritten letters, EMNIST's split of 26 classes, small and capital together; not fetched."""

    num_classes = 26
    # likewise
    mean = (0.1722,)
    std = (0.3309,)
    split = "letters"
    first_label = 1


class Femnist(Dataset, name="femnist", label="FEMNIST"):
    """28x28 handwritten digits and letters of 62 classes, a worker per writer, as LEAF writes them; not fetched."""

    num_classes = 62
    shape = (1, 28, 28)
    # white paper with black ink, unlike EMNIST; as public code that reads LEAF's files has them
    mean = (0.9641,)
    std = (0.1592,)
    folders = ("femnist/data", "femnist")
    licence = "www.nist.gov/open/license (NIST Special Database 19); LEAF BSD-2-Clause"
    partition = "natural"
    targets = (0.6, 0.7, 0.8)

    def load(self, folder: Path) -> Pair:
        train, test = (read_leaf(folder / part) for part in ("train", "test"))
        numbers = {user: number for number, user in enumerate(sorted(train))}
        numbers |= {user: len(train) + number for number, user in enumerate(sorted(test.keys() - train.keys()))}
        return _joined(train, numbers), _joined(test, numbers)


Users = dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]


def read_leaf(folder: Path) -> Users:
    """Return images [n, 1, 28, 28] and labels of every user in a folder of LEAF's JSON files.

    Raises ``DamagedFile`` where there is none or one does not hold what LEAF writes.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DamagedFile(folder, "holds no .json file")
    users: Users = {}
    for file in files:
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["user_data"]
            for user, samples in found.items():
                users[str(user)] = _images(samples["x"]), np.array(samples["y"], np.int64).reshape(-1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:150]
            raise DamagedFile(file, f"is not a file of LEAF's: {reason}") from None
    return users


def _images(pixels: Any) -> NDArray[np.uint8]:
    values = np.array(pixels, np.float64).reshape(-1, 1, 28, 28)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a pixel is outside 0..1")
    return np.rint(values * 255).astype(np.uint8)


def _joined(users: Users, numbers: dict[str, int]) -> Samples:
    ordered = sorted(users, key=numbers.__getitem__)
    images, labels = (np.concatenate([users[user][part] for user in ordered]) for part in (0, 1))
    owners = np.concatenate([np.full(len(users[user][1]), numbers[user]) for user in ordered])
    return Samples.from_arrays(images, labels, owners)
