"""What ``Perceptron.train_workers`` compiles: a worker's batches and steps, from the global model to its update."""

import numpy as np

from fl_platform.kernels import compiled_perceptron
from fl_platform.kernels.primitives import floats, inlined, integers, pointer

take_steps = inlined(compiled_perceptron.train)


@inlined
def gather(source: int, indices: int, count: int, x: int, labels: int) -> None:
    """Write the samples at some indices as the network takes them, and their labels.

    ``source`` has the addresses of all samples and labels, the channels of a sample, its numbers per channel, and the
    addresses of the channels' factors and terms: samples are bytes. Without these they are float32 numbers.
    """
    given, chosen, kept = integers(source), integers(indices), integers(labels)
    features, classes, channels, pixels = given[0], integers(given[1]), given[2], given[3]
    for k in range(count):
        index = chosen[k]
        kept[k] = classes[index]
        for channel in range(channels):
            first = (index * channels + channel) * pixels
            made = floats(x + 4 * (k * channels + channel) * pixels)
            if given[4]:
                factor, term = floats(given[4])[channel], floats(given[5])[channel]
                image = pointer(features + first, np.uint8(0))
                for pixel in range(pixels):
                    made[pixel] = np.float32(image[pixel]) * factor + term
            else:
                numbers = floats(features + 4 * first)
                for pixel in range(pixels):
                    made[pixel] = numbers[pixel]


def train_worker(
    layers: int,
    rates: int,
    num_layers: int,
    source: int,
    plan: int,
    start: int,
    params: int,
    dim: int,
    buffers: int,
    delta: int,
    losses: int,
    work: int,
    room: int,
    places: int,
    widest: int,
    rate: float,
) -> None:
    """Take a worker's steps from ``start``, and write the way back: ``delta`` is start - params.

    ``plan`` has the addresses of the indices of the first batch and of its length, how many numbers later those of the
    next batch are, the number of batches, and places for a batch's samples, labels and table.
    """
    told = integers(plan)
    batch = integers(told[7])
    compiled_perceptron.copy(start, params, dim)
    for number in range(told[4]):
        count = integers(told[1] + 8 * number * told[3])[0]
        gather(source, told[0] + 8 * number * told[2], count, told[5], told[6])
        batch[0], batch[1], batch[2] = told[5], told[6], count
        take_steps(
            layers,
            rates,
            num_layers,
            params,
            buffers,
            told[7],
            1,
            0,
            losses + 4 * number,
            work,
            room,
            places,
            widest,
            rate,
        )
    before, after, way = floats(start), floats(params), floats(delta)
    for k in range(dim):
        way[k] = before[k] - after[k]
