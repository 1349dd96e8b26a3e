"""Shares of a cohort: what trimmed mean and Krum have in common."""

import math
from decimal import Decimal


def whole_share(share: float, count: int) -> int:
    """floor(share * count), of the share as it is written: 0.29 of 100 is 29, which floating point makes 28.99..."""
    return math.floor(Decimal(str(share)) * count)
