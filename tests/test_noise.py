"""Random numbers as a function of key and position: the same for any batching, and random enough."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fl_platform import noise, seeding

keys = st.integers(-(2**63), 2**63 - 1)


def many_keys(count: int) -> torch.Tensor:
    return torch.from_numpy(seeding.stream_keys(1, np.arange(count), 0, "test")[0])


@settings(max_examples=40)
@given(st.lists(keys, min_size=1, max_size=5), st.integers(1, 50), st.integers(0, 5))
def test_stacked_equals_single_and_a_longer_draw_starts_with_a_shorter_one(values, count, stream):
    stacked = noise.bits(torch.tensor(values), count, stream)
    single = torch.stack([noise.bits(torch.tensor(value), count, stream) for value in values])
    longer = noise.bits(torch.tensor(values), count + 7, stream)
    assert torch.equal(stacked, single)
    assert torch.equal(stacked, longer[:, :count])
    assert int(stacked.min()) >= 0


@given(st.lists(keys, min_size=1, max_size=4, unique=True), st.integers(1, 30))
def test_vmap_gives_the_same_numbers(values, count):
    stacked = torch.vmap(lambda key: noise.bits(key, count))(torch.tensor(values))
    assert torch.equal(stacked, noise.bits(torch.tensor(values), count))


@given(keys, st.integers(1, 200), st.integers(1, 1000))
def test_integers_stay_below_their_bound(key, count, below):
    drawn = noise.integers(torch.tensor(key), count, below)
    assert drawn.dtype == torch.int64
    assert int(drawn.min()) >= 0
    assert int(drawn.max()) < below


def test_integers_are_uniform_over_positions_and_over_keys():
    for drawn in (
        noise.integers(torch.tensor(12345), 100_000, 10),
        noise.integers(many_keys(100_000), 1, 10).flatten(),
    ):
        counts = torch.bincount(drawn, minlength=10).numpy()
        assert stats.chisquare(counts).pvalue > 1e-4


def test_keep_mask_drops_the_share_asked_for():
    for drop in (0.0, 0.1, 0.5, 0.9, 1.0):
        kept = noise.keep_mask(torch.tensor(99), 50_000, drop).double().mean()
        assert abs(float(kept) - (1 - drop)) < 5 * np.sqrt(0.25 / 50_000)
    assert bool(noise.keep_mask(torch.tensor(1), 1000, 0.0).all())
    assert not bool(noise.keep_mask(torch.tensor(1), 1000, 1.0).any())


def test_streams_and_keys_are_uncorrelated():
    key = many_keys(40)
    masks = torch.cat([noise.keep_mask(key, 4000, 0.5, stream) for stream in (0, 1, 2)]).double().numpy()
    correlations = np.corrcoef(masks)[np.triu_indices(len(masks), 1)]
    assert np.abs(correlations).max() < 6 / np.sqrt(4000)


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    noise.bits(torch.tensor(5), 100)
    assert torch.equal(before, torch.get_rng_state())
