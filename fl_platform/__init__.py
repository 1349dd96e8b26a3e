"""Reproducible federated-learning experiments on PyTorch Lightning and Weights & Biases."""

__version__ = "0.1.0"
