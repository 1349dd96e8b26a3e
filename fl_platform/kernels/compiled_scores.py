"""What ``Perceptron.scores`` compiles: an evaluation of a chain of layers, with losses and hits.

Samples lie side by side, a line per feature, from the first layer on: every product is then one of ``outer`` tiles,
which need no sums across lanes, and what is done to a sample's classes is done to as many samples as a vector holds.
"""

import math

import numpy as np

from fl_platform.kernels.compiled_linear import DEPTH, outer
from fl_platform.kernels.compiled_perceptron import rectify
from fl_platform.kernels.perceptron_layers import (
    BIAS,
    EPSILON,
    FIELDS,
    INPUTS,
    KIND,
    LINEAR,
    MEAN,
    OUTPUTS,
    PLACE,
    RATES,
    RELU,
    VARIANCE,
    WEIGHT,
)
from fl_platform.kernels.primitives import doubles, floats, fma, inlined, integers, power_of_two
from fl_platform.kernels.transposition import transpose

LOWEST = np.float32(-87)
"""Exponents below count as this one: e^-87 is next to float32's smallest normal number."""
PER_BINARY_DIGIT = np.float32(1 / math.log(2))
LOG_TWO = np.float32(math.log(2))
REST_OF_LOG_TWO = np.float32(math.log(2) - float(LOG_TWO))
ROUNDING = np.float32(1.5 * 2**23)
"""Added to a number and taken away again, it leaves the nearest integer."""


def scores(
    layers: int,
    rates: int,
    num_layers: int,
    params: int,
    buffers: int,
    x: int,
    labels: int,
    samples: int,
    classes: int,
    sums: int,
    logits: int,
    work: int,
    room: int,
) -> None:
    """Add the loss of all samples, their hits by class and their number by class to ``sums``, float64.

    ``classes`` is how many of them ``sums`` has places for. The logits are written if there is an address. The working
    memory is that of ``room`` samples: their features, the outputs of all layers, and three numbers more.
    """
    inputs, outputs = integers(layers)[INPUTS], integers(layers + 8 * FIELDS * (num_layers - 1))[OUTPUTS]
    for first in range(0, samples, room):
        count = min(room, samples - first)
        scratch, given = work, work + 12 * room
        transpose(x + 4 * first * inputs, count, inputs, given)
        found = run(layers, rates, num_layers, params, buffers, given, count, given + 4 * room * inputs, room)
        if logits:
            transpose(found, outputs, count, logits + 4 * first * outputs)
        add_scores(found, labels + 8 * first, count, outputs, classes, sums, scratch)


@inlined
def run(
    layers: int, rates: int, num_layers: int, params: int, buffers: int, x: int, samples: int, work: int, room: int
) -> int:
    """Run the layers in evaluation mode; returns where the last one's outputs are."""
    for number in range(num_layers):
        layer, rate = integers(layers + 8 * FIELDS * number), floats(rates + 4 * RATES * number)
        inputs, outputs, into = layer[INPUTS], layer[OUTPUTS], work + 4 * room * layer[PLACE]
        weight, bias = params + 4 * layer[WEIGHT], params + 4 * layer[BIAS]
        if layer[KIND] == LINEAR:
            fill_lines(bias, into, outputs, samples)
            outer(weight, inputs, 1, x, outputs, inputs, samples, into, DEPTH, into, 1.0)
        elif layer[KIND] == RELU:
            rectify(into, samples * outputs)
        else:
            mean, variance = buffers + 4 * layer[MEAN], buffers + 4 * layer[VARIANCE]
            normalise_lines(x, weight, bias, mean, variance, rate[EPSILON], into, outputs, samples)
        x = into
    return x


@inlined
def fill_lines(numbers: int, into: int, lines: int, length: int) -> None:
    """Write lines of the same number."""
    given, made = floats(numbers), floats(into)
    for line in range(lines):
        number = given[line]
        for k in range(length):
            made[line * length + k] = number


@inlined
def normalise_lines(
    x: int, weight: int, bias: int, mean: int, variance: int, epsilon: float, into: int, lines: int, length: int
) -> None:
    """BatchNorm with running statistics, a line per feature."""
    values, made, w, b = floats(x), floats(into), floats(weight), floats(bias)
    shift, spread = floats(mean), floats(variance)
    for line in range(lines):
        scale = np.float32(1) / np.sqrt(spread[line] + np.float32(epsilon))
        centre, factor, term = shift[line], w[line], b[line]
        for k in range(length):
            made[line * length + k] = (values[line * length + k] - centre) * scale * factor + term


@inlined
def add_scores(logits: int, labels: int, samples: int, outputs: int, classes: int, sums: int, scratch: int) -> None:
    """Cross-entropy and hits of samples whose logits lie side by side; NaN for a label that is none of the classes.

    The class found is that of the first of the largest logits, NaN being larger than all numbers.
    """
    z, chosen, total = floats(logits), integers(labels), doubles(sums)
    largest, found, norm = floats(scratch), floats(scratch + 4 * samples), floats(scratch + 8 * samples)
    for k in range(samples):
        largest[k], found[k], norm[k] = z[k], np.float32(0), np.float32(0)
    for line in range(1, outputs):
        number = np.float32(line)
        for k in range(samples):
            value, before = z[line * samples + k], largest[k]
            is_larger = (value > before) | ((value != value) & (before == before))
            largest[k] = value if is_larger else before
            found[k] = number if is_larger else found[k]
    for line in range(outputs):
        for k in range(samples):
            norm[k] += exponential(z[line * samples + k] - largest[k])
    for k in range(samples):
        label = chosen[k]
        if label < 0 or label >= min(outputs, classes):
            total[0] = np.nan
            continue
        rest = np.float64(largest[k]) - np.float64(z[label * samples + k])
        total[0] += np.float64(math.log(norm[k])) + rest
        if found[k] == np.float32(label):
            total[1 + label] += 1.0
        total[1 + classes + label] += 1.0


@inlined
def exponential(x: float) -> float:
    """e^x for x <= 0, to two units in the last place; NaN stays.

    x = n log 2 + r with |r| <= log 2 / 2, and eight terms of the series for e^r, the next of which is below 2^-27.
    """
    exponent = LOWEST if x < LOWEST else x
    shifted = fma(exponent, PER_BINARY_DIGIT, ROUNDING)
    n = shifted - ROUNDING
    r = fma(-n, REST_OF_LOG_TWO, fma(-n, LOG_TWO, exponent))
    series = fma(r, np.float32(1 / 5040), np.float32(1 / 720))
    series = fma(r, series, np.float32(1 / 120))
    series = fma(r, series, np.float32(1 / 24))
    series = fma(r, series, np.float32(1 / 6))
    series = fma(r, series, np.float32(1 / 2))
    series = fma(r, series, np.float32(1))
    found: float = fma(r, series, np.float32(1)) * power_of_two(shifted)
    return found
