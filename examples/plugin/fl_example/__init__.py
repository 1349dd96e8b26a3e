"""Registers everything of this package: ``plugins=[fl_example]``."""

from fl_example import fedclip, fedscale, small_cnn, stripes

__all__ = ["fedclip", "fedscale", "small_cnn", "stripes"]
