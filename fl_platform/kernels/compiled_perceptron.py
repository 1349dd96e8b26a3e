"""What ``perceptron`` compiles for training: gradients and steps of a chain of linear layers, ReLU and BatchNorm.

Samples are rows. Arguments are addresses of float32 numbers in C's order, layers and labels are int64; everything is
written where the caller said, and nothing is allocated here.
"""

import math

import numpy as np

from fl_platform.kernels.compiled_linear import DEPTH, linear, outer
from fl_platform.kernels.perceptron_layers import (
    BIAS,
    EPSILON,
    FIELDS,
    INPUTS,
    KIND,
    LINEAR,
    MEAN,
    MOMENTS,
    MOMENTUM,
    OUTPUTS,
    PLACE,
    RATES,
    RELU,
    VARIANCE,
    WEIGHT,
)
from fl_platform.kernels.primitives import floats, fma, inlined, integers


@inlined
def rectify(address: int, count: int) -> None:
    """Zero for what is negative; NaN stays."""
    x = floats(address)
    for k in range(count):
        x[k] = np.float32(0) if x[k] < 0 else x[k]


@inlined
def rectify_gradient(gradient: int, output: int, count: int) -> None:
    """Zero where the output is not positive."""
    g, x = floats(gradient), floats(output)
    for k in range(count):
        g[k] = np.float32(0) if x[k] <= 0 else g[k]


@inlined
def copy(address: int, into: int, count: int) -> None:
    """Write so many numbers to another place."""
    x, made = floats(address), floats(into)
    for k in range(count):
        made[k] = x[k]


@inlined
def column_sums(address: int, samples: int, columns: int, into: int) -> None:
    """The sums over samples."""
    x, total = floats(address), floats(into)
    for k in range(columns):
        total[k] = np.float32(0)
    for sample in range(samples):
        for k in range(columns):
            total[k] += x[sample * columns + k]


@inlined
def step(weights: int, gradient: int, count: int, rate: float, into: int) -> None:
    """w - rate g, rounded once, as torch does it."""
    w, g, factor, made = floats(weights), floats(gradient), -np.float32(rate), floats(into)
    for k in range(count):
        made[k] = fma(factor, g[k], w[k])


@inlined
def measure(x: int, moments: int, samples: int, width: int, epsilon: float) -> None:
    """Write mean, variance and 1 / deviation of a batch's columns, one after another."""
    values, mean, variance = floats(x), floats(moments), floats(moments + 4 * width)
    scale, number = floats(moments + 8 * width), np.float32(samples)
    column_sums(x, samples, width, moments)
    for k in range(width):
        mean[k] /= number
        variance[k] = np.float32(0)
    for sample in range(samples):
        for k in range(width):
            centred = values[sample * width + k] - mean[k]
            variance[k] += centred * centred
    for k in range(width):
        variance[k] /= number
        scale[k] = np.float32(1) / np.sqrt(variance[k] + np.float32(epsilon))


@inlined
def transform(x: int, weight: int, bias: int, mean: int, scale: int, into: int, samples: int, width: int) -> None:
    """(x - mean) scale weight + bias."""
    values, made, shift, factor, w, b = (
        floats(x),
        floats(into),
        floats(mean),
        floats(scale),
        floats(weight),
        floats(bias),
    )
    for sample in range(samples):
        for k in range(width):
            made[sample * width + k] = (values[sample * width + k] - shift[k]) * factor[k] * w[k] + b[k]


@inlined
def update_statistics(moments: int, mean: int, variance: int, samples: int, width: int, momentum: float) -> None:
    """Move running statistics towards those of a batch; its variance is that of a sample, as torch has it."""
    batch_mean, batch_variance = floats(moments), floats(moments + 4 * width)
    running_mean, running_variance = floats(mean), floats(variance)
    share, rest = np.float32(momentum), np.float32(1 - momentum)
    for k in range(width):
        running_mean[k] = share * batch_mean[k] + rest * running_mean[k]
        unbiased = batch_variance[k] * np.float32(samples) / np.float32(samples - 1)
        running_variance[k] = share * unbiased + rest * running_variance[k]


@inlined
def norm_gradient(
    gradient: int, x: int, weight: int, moments: int, sums: int, into: int, samples: int, width: int
) -> None:
    """The derivatives of BatchNorm: those of weight and bias to ``sums``, that of its input to ``into``."""
    g, values, made, w = floats(gradient), floats(x), floats(into), floats(weight)
    mean, scale, of_weight, of_bias = (
        floats(moments),
        floats(moments + 8 * width),
        floats(sums),
        floats(sums + 4 * width),
    )
    column_sums(gradient, samples, width, sums + 4 * width)
    for k in range(width):
        of_weight[k] = np.float32(0)
    for sample in range(samples):
        for k in range(width):
            of_weight[k] += g[sample * width + k] * ((values[sample * width + k] - mean[k]) * scale[k])
    share = np.float32(1) / np.float32(samples)
    for sample in range(samples):
        for k in range(width):
            normal = (values[sample * width + k] - mean[k]) * scale[k]
            rest = g[sample * width + k] - share * of_bias[k] - normal * (share * of_weight[k])
            made[sample * width + k] = w[k] * scale[k] * rest


@inlined
def cross_entropy(logits: int, labels: int, samples: int, classes: int, gradient: int) -> float:
    """The mean loss of a batch, and its derivative; NaN for a label that is none of the classes."""
    chosen, share, total = integers(labels), np.float32(1) / np.float32(samples), 0.0
    for sample in range(samples):
        x, g = floats(logits + 4 * sample * classes), floats(gradient + 4 * sample * classes)
        largest, norm = x[0], np.float32(0)
        for k in range(1, classes):
            largest = max(largest, x[k])
        for k in range(classes):
            g[k] = math.exp(x[k] - largest)
            norm += g[k]
        for k in range(classes):
            g[k] *= share / norm
        label = chosen[sample]
        if label < 0 or label >= classes:
            return np.nan
        g[label] -= share
        total += np.float64(math.log(norm)) + (np.float64(largest) - np.float64(x[label]))
    return total / samples


@inlined
def forward(
    layers: int, rates: int, num_layers: int, params: int, x: int, samples: int, work: int, room: int, moments: int
) -> int:
    """Run the layers; returns where the last one's outputs are. Moments of the batch are written."""
    for number in range(num_layers):
        layer, rate = integers(layers + 8 * FIELDS * number), floats(rates + 4 * RATES * number)
        inputs, outputs, into = layer[INPUTS], layer[OUTPUTS], work + 4 * room * layer[PLACE]
        weight, bias = params + 4 * layer[WEIGHT], params + 4 * layer[BIAS]
        if layer[KIND] == LINEAR:
            linear(x, weight, bias, into, samples, inputs, outputs)
        elif layer[KIND] == RELU:  # in place: the next layer's derivative is taken at what it writes
            rectify(into, samples * outputs)
        else:
            found = moments + 4 * layer[MOMENTS]
            measure(x, found, samples, outputs, rate[EPSILON])
            transform(x, weight, bias, found, found + 8 * outputs, into, samples, outputs)
        x = into
    return x


def train(
    layers: int,
    rates: int,
    num_layers: int,
    params: int,
    stepped: int,
    buffers: int,
    batches: int,
    num_batches: int,
    into: int,
    losses: int,
    work: int,
    room: int,
    places: int,
    widest: int,
    rate: float,
) -> None:
    """Take an SGD step per batch from ``params`` to ``stepped``, or write one batch's gradient ``into`` a vector.

    ``batches`` has the addresses of samples and labels and the number of samples of each. Running statistics in
    ``buffers`` are updated if there are any. The working memory holds ``room`` samples of ``places`` outputs and twice
    those of the widest layer, twice the widest layer, and the moments of a batch.
    """
    above = work + 4 * room * places
    below = above + 4 * room * widest
    sums = below + 4 * room * widest
    moments = sums + 8 * widest
    losses_found, written = floats(losses), into if into else stepped
    for batch in range(num_batches):
        given = integers(batches + 24 * batch)
        x, labels, samples = given[0], given[1], given[2]
        logits = forward(layers, rates, num_layers, params, x, samples, work, room, moments)
        classes = integers(layers + 8 * FIELDS * (num_layers - 1))[OUTPUTS]
        losses_found[batch] = cross_entropy(logits, labels, samples, classes, above)
        for number in range(num_layers - 1, -1, -1):
            layer, below_it = integers(layers + 8 * FIELDS * number), integers(layers + 8 * FIELDS * (number - 1))
            inputs, outputs = layer[INPUTS], layer[OUTPUTS]
            if layer[KIND] == RELU:
                rectify_gradient(above, work + 4 * room * layer[PLACE], samples * outputs)
                continue
            seen = x
            if number > 0:
                seen = work + 4 * room * below_it[PLACE]
            weight, bias = params + 4 * layer[WEIGHT], params + 4 * layer[BIAS]
            if layer[KIND] == LINEAR:
                if number > 0:
                    outer(above, outputs, 1, weight, samples, outputs, inputs, below, DEPTH, 0, 0.0)
                column_sums(above, samples, outputs, sums + 4 * outputs)
                target, base = written + 4 * layer[WEIGHT], 0 if into else weight
                outer(above, 1, outputs, seen, outputs, samples, inputs, target, max(samples, 1), base, -rate)
            else:
                batch_moments = moments + 4 * layer[MOMENTS]
                norm_gradient(above, seen, weight, batch_moments, sums, below, samples, outputs)
                if buffers:
                    mean, variance = buffers + 4 * layer[MEAN], buffers + 4 * layer[VARIANCE]
                    momentum = floats(rates + 4 * RATES * number)[MOMENTUM]
                    update_statistics(batch_moments, mean, variance, samples, outputs, momentum)
                if into:
                    copy(sums, into + 4 * layer[WEIGHT], outputs)
                else:
                    step(weight, sums, outputs, rate, stepped + 4 * layer[WEIGHT])
            if into:
                copy(sums + 4 * outputs, into + 4 * layer[BIAS], outputs)
            else:
                step(bias, sums + 4 * outputs, outputs, rate, stepped + 4 * layer[BIAS])
            above, below = below, above
        if not into:
            params = stepped
