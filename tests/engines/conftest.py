"""Which kernels local training used."""

import pytest

from fl_platform.kernels.perceptron import Perceptron


@pytest.fixture
def whole_workers(monkeypatch):
    """How many steps each worker took in ``Perceptron.train_workers``."""
    seen, train_workers = [], Perceptron.train_workers

    def counting(kernel, source, indices, counts, num_steps, *others):
        seen.extend(num_steps)
        return train_workers(kernel, source, indices, counts, num_steps, *others)

    monkeypatch.setattr(Perceptron, "train_workers", counting)
    return seen
