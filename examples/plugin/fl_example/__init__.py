"""Registers everything of this package: ``plugins=[fl_example]``."""

from fl_example import fedadagrad, fedclip, small_cnn, stripes

__all__ = ["fedadagrad", "fedclip", "small_cnn", "stripes"]
