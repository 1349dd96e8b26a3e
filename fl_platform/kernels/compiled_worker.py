"""What ``whole_workers`` compiles: batches and steps of workers, from the global model to their updates.

Four tables of integers are given by their addresses:

``network``: addresses of the layers' tables of integers and of numbers, the number of layers, parameters, the address
of the working memory, and the three sizes that ``compiled_perceptron.train`` takes with it.

``batches``: addresses of the source, of the first index and of the first length; how many numbers later those of the
next step are, and those of the next worker; the number of workers, the address of their numbers of steps, and how many
the losses of a worker have; places for a batch's samples, labels and table.

``vectors``: addresses of the global model, of the first worker's running statistics (0 for none), update and last
model; how many bytes later those of the next worker are, each of the last three.

``descent``: addresses of three models and of three gradients, of the first worker's x_{-1} (0 for none), and how many
bytes later that of the next is; addresses of the segments' edges, and their number; places for the addresses of a
vector and its anchors, and for two numbers of ticks of the clock: those of projections and those of everything.
"""

import numpy as np

from fl_platform.kernels import compiled_perceptron, compiled_projection
from fl_platform.kernels.primitives import floats, inlined, integers, pointer, ticks
from fl_platform.kernels.worker_projection import FOUND

train = inlined(compiled_perceptron.train)
project_and_step = inlined(compiled_projection.step_float32)


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


@inlined
def load(batches: int, worker: int, step: int) -> int:
    """Gather the batch of a step; returns the address of its table."""
    told = integers(batches)
    count = integers(told[2] + 8 * (step * told[4] + worker * told[6]))[0]
    gather(told[0], told[1] + 8 * (step * told[3] + worker * told[5]), count, told[10], told[11])
    place: int = told[12]
    batch = integers(place)
    batch[0], batch[1], batch[2] = told[10], told[11], count
    return place


@inlined
def take_step(
    network: int, params: int, stepped: int, buffers: int, batch: int, into: int, loss: int, rate: float
) -> None:
    """A step of SGD, or a gradient ``into`` a vector."""
    told = integers(network)
    layers, rates, work = told[0], told[1], told[4]
    train(layers, rates, told[2], params, stepped, buffers, batch, 1, into, loss, work, told[5], told[6], told[7], rate)


@inlined
def subtract(address: int, other: int, into: int, count: int) -> None:
    """The difference of two vectors."""
    x, y, made = floats(address), floats(other), floats(into)
    for k in range(count):
        made[k] = x[k] - y[k]


def train_workers(network: int, batches: int, vectors: int, losses: int, rate: float) -> None:
    """Take the workers' steps along their gradients; ``losses`` has a line for each worker."""
    told, given, dim = integers(batches), integers(vectors), integers(network)[3]
    for worker in range(told[7]):
        statistics, last = given[1] + worker * given[4], given[3] + worker * given[6]
        now = given[0]
        for step in range(integers(told[8])[worker]):
            batch = load(batches, worker, step)
            loss = losses + 4 * (worker * told[9] + step)
            take_step(network, now, last, statistics, batch, 0, loss, rate)
            now = last
        subtract(given[0], now, given[2] + worker * given[5], dim)


def train_projected_workers(
    network: int,
    batches: int,
    vectors: int,
    descent: int,
    losses: int,
    found: int,
    margin: float,
    rate: float,
) -> None:
    """Take the workers' steps along projected gradients, as GradMA's.

    ``found`` takes what every projection found, segment by segment; one more of the losses is written, of anchors.
    """
    told, given, own, dim = integers(batches), integers(vectors), integers(descent), integers(network)[3]
    began, clock, columns, elsewhere = ticks(), integers(own[7]), integers(own[6]), losses + 4 * told[7] * told[9]
    gradient, of_previous, of_center = own[1], own[1] + 4 * dim, own[1] + 8 * dim
    columns[0] = gradient
    for worker in range(told[7]):
        statistics, last = given[1] + worker * given[4], given[3] + worker * given[6]
        previous = own[2] + worker * own[3]
        num_steps, center = integers(told[8])[worker], given[0]
        now, before = center, previous
        for step in range(num_steps):
            batch = load(batches, worker, step)
            loss = losses + 4 * (worker * told[9] + step)
            following = last if step == num_steps - 1 else own[0] + 4 * dim * (step % 3)
            models, gradients, anchors = (now, before, center), (gradient, of_previous, of_center), 0
            for model in range(3):  # one call in a loop, which is compiled once
                if (model == 1 and (not before or step == 1)) or (model == 2 and step == 0):
                    continue  # there is no x_{tau-1}, or it is x_t, or x is
                into = gradients[model]
                is_own = model == 0
                place = loss if is_own else elsewhere
                take_step(network, models[model], 0, statistics if is_own else 0, batch, into, place, 0.0)
                if not is_own:
                    anchors += 1
                    columns[anchors] = into
            if step == 0 and before:
                anchors += 1
                columns[anchors] = gradient  # x is x_t
            if anchors:
                columns[anchors + 1] = now
                start = ticks()
                origin = center if step > 0 else 0  # there is no drift yet
                project_and_step(own[6], anchors, origin, dim, own[4], own[5], following, found, margin, rate)
                clock[0] += ticks() - start
                found += 8 * FOUND * own[5]
            else:
                compiled_perceptron.step(now, gradient, dim, rate, following)
            before, now = now, following
        subtract(center, now, given[2] + worker * given[5], dim)
    clock[1] += ticks() - began
