"""Reproducible federated-learning experiments on PyTorch Lightning and Weights & Biases."""

from fl_platform import _torchvision

__version__ = "0.1.0"

_torchvision.install()
