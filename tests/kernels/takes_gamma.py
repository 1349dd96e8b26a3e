"""A kernel that calls a function of C which kernels may not call."""

import math

from fl_platform.kernels.primitives import doubles


def takes_gamma(place: int) -> None:
    numbers = doubles(place)
    numbers[0] = math.gamma(numbers[0])
