"""Measurements of the platform: rounds, kernels, scaling and memory."""

import fl_platform  # noqa: F401  first: with it torchvision and lightning import everywhere
