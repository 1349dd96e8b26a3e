"""The plain GradMA of the benchmarks: its parts do what the paper says."""

import torch

from benchmarks import plain_gradma
from fl_platform import models


def test_the_server_opposes_no_row_of_the_memory():
    generator = torch.Generator().manual_seed(0)
    memory, direction = torch.randn(5, 40, generator=generator), torch.randn(40, generator=generator)
    found = plain_gradma.server_step(direction, memory)
    assert (memory @ found).min() > -1e-4
    assert (memory @ direction).min() < 0


def test_the_first_local_step_is_one_of_sgd():
    generator = torch.Generator().manual_seed(0)
    network = models.build("mlp", (1, 4, 4), 10, norm="none", generator=generator)
    start = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    batch = torch.randn(6, 1, 4, 4, generator=generator), torch.randint(0, 10, (6,), generator=generator)
    expected = start - 0.1 * plain_gradma.gradient(network, start, *batch)
    torch.testing.assert_close(plain_gradma.local_work(network, start, [batch], 0.1), expected)
