"""Which kernels local training used."""

import pytest

from fl_platform.kernels.whole_workers import WholeWorkers


@pytest.fixture
def whole_workers(monkeypatch):
    """How many steps each worker took that a kernel trained from x_t to its update along plain gradients."""
    return _steps_of(monkeypatch, "train")


@pytest.fixture
def projected_workers(monkeypatch):
    """The same along projected gradients."""
    return _steps_of(monkeypatch, "train_projected")


def _steps_of(monkeypatch, method):
    seen, train = [], getattr(WholeWorkers, method)

    def counting(kernel, batches, *args, **options):
        seen.extend(batches.num_steps.tolist())
        return train(kernel, batches, *args, **options)

    monkeypatch.setattr(WholeWorkers, method, counting)
    return seen
