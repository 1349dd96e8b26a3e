"""Two small tables embedded in scikit-learn, for tests and first experiments on tables."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fl_platform import seeding
from fl_platform.data.readers import Pair
from fl_platform.data.samples import Samples, hold_out
from fl_platform.data.sets.base import Dataset

TEST_SHARE = 0.2


@cache
def read_table(loader: str) -> Pair:
    """Read (train, test) of one of ``sklearn.datasets``; a fifth of each class, always the same, is the test set."""
    import sklearn.datasets  # takes a second, and only these data sets need it

    table: Any = getattr(sklearn.datasets, loader)()
    labels = table.target.astype(np.int64)
    everything = Samples.from_arrays(table.data.astype(np.float32), labels)
    kept, held = hold_out(labels, round(TEST_SHARE * len(labels)), seeding.generator(0, loader))
    return everything.subset(kept), everything.subset(held)


class Table(Dataset):
    """A table whose columns are standardised with the mean and deviation of the training rows."""

    features = "numbers"
    loader: str
    num_rounds = 50

    def load(self, folder: Path) -> Pair:
        return read_table(self.loader)

    def statistics(self) -> tuple[Sequence[float], Sequence[float]]:
        rows = read_table(self.loader)[0].features.double()
        return rows.mean(0).tolist(), rows.std(0, correction=0).tolist()


class BreastCancer(Table, name="breast_cancer", label="Breast cancer"):
    """569 tumours by 30 measurements, benign or not; embedded in scikit-learn, needs no files."""

    num_classes = 2
    shape = (30,)
    loader = "load_breast_cancer"
    licence = "CC BY 4.0 (UCI, Breast Cancer Wisconsin Diagnostic)"
    targets = (0.9, 0.95)


class Wine(Table, name="wine", label="Wine"):
    """178 wines of three growers by 13 measurements; embedded in scikit-learn, needs no files."""

    num_classes = 3
    shape = (13,)
    loader = "load_wine"
    licence = "CC BY 4.0 (UCI, Wine)"
    targets = (0.9, 0.95)
