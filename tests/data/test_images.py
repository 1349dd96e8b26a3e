import pytest
import torch
from torch import nn

from fl_platform import noise
from fl_platform.data import datasets
from fl_platform.data.device_samples import DeviceSamples, channels_last
from fl_platform.data.samples import Samples
from tests.federations import described

CPU = torch.device("cpu")


def image_set(shape, count=20) -> Samples:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
    return Samples(pixels, torch.randint(0, 10, (count,), generator=generator))


def dataset_like(name, **changes):
    return described(type(datasets.get(name)), **changes)


def reference_augmented(pixels, padding, flips, key, position):
    """One image: pad with black, cut a window, mirror it."""
    top, left = (int(noise.integers(key, position + 1, 2 * padding + 1, stream)[position]) for stream in (0, 1))
    canvas = torch.zeros(
        pixels.shape[0], pixels.shape[1] + 2 * padding, pixels.shape[2] + 2 * padding, dtype=pixels.dtype
    )
    canvas[:, padding : padding + pixels.shape[1], padding : padding + pixels.shape[2]] = pixels
    window = canvas[:, top : top + pixels.shape[1], left : left + pixels.shape[2]]
    if flips and int(noise.integers(key, position + 1, 2, 2)[position]) == 1:
        return torch.stack([window[..., x] for x in reversed(range(window.shape[-1]))], dim=-1)
    return window


def normalised(pixels, dataset):
    mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (dataset.mean, dataset.std))
    return (pixels.to(torch.float64) / 255 - mean) / std


@pytest.mark.parametrize(("padding", "flips"), [(4, True), (2, False), (0, True)])
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 6, 9)])
def test_crop_and_flip_equal_an_image_by_image_reference(padding, flips, shape):
    dataset = dataset_like("cifar10", shape=shape, crop_padding=padding, flip=flips)
    source = image_set(shape)
    images = DeviceSamples(source, dataset, CPU, torch.float64)
    indices = torch.randint(0, 20, (3, 4, 8))
    keys = torch.randint(-(2**62), 2**62, (3, 4))
    batch = images.batch(indices, keys)
    assert batch.shape == (3, 4, 8, *shape)
    for place in torch.cartesian_prod(*map(torch.arange, indices.shape)).tolist():
        key = keys[place[0], place[1]]
        expected = reference_augmented(source.features[indices[tuple(place)]], padding, flips, key, place[2])
        torch.testing.assert_close(batch[tuple(place)], normalised(expected, dataset), rtol=0, atol=1e-12)


def test_all_offsets_and_both_orientations_occur_evenly():
    dataset = dataset_like("cifar10", shape=(3, 4, 4), crop_padding=1)
    pixels = torch.arange(1, 49, dtype=torch.uint8).view(1, 3, 4, 4)
    images = DeviceSamples(Samples(pixels, torch.zeros(1, dtype=torch.int64)), dataset, CPU, torch.float32)
    batch = images.batch(torch.zeros(90, 64, dtype=torch.int64), torch.arange(90) * 0x9E3779B97F4A7C1)
    _, counts = torch.unique(batch.flatten(0, 1).flatten(1), dim=0, return_counts=True)
    assert len(counts) == 18
    assert counts.min() > 5760 / 18 * 0.75


def test_padding_and_company_do_not_change_a_sample():
    images = DeviceSamples(image_set((3, 32, 32)), datasets.get("cifar10"), CPU, torch.float32)
    indices, keys = torch.randint(0, 20, (5, 8)), torch.randint(0, 2**60, (5,))
    whole = images.batch(indices, keys)
    assert torch.equal(whole[2, :3], images.batch(indices[2, :3], keys[2]))
    assert torch.equal(whole[[4, 1]], images.batch(indices[[4, 1]], keys[[4, 1]]))


def test_without_keys_or_augmentation_images_are_only_normalised():
    for name, keys in (("cifar10", None), ("mnist", torch.tensor([5]))):
        dataset = datasets.get(name)
        source = image_set(dataset.shape)
        images = DeviceSamples(source, dataset, CPU, torch.float32)
        indices = torch.tensor([[3, 3, 0]])
        expected = normalised(source.features[indices], dataset).to(torch.float32)
        torch.testing.assert_close(images.batch(indices, keys), expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(images.whole()[indices], expected, rtol=0, atol=1e-6)
        assert torch.equal(images.labels(indices), source.labels[indices])


def test_whole_is_computed_once_and_leaves_the_pixels():
    images = DeviceSamples(image_set((1, 28, 28)), datasets.get("mnist"), CPU, torch.float32)
    before = images.batch(torch.arange(20))
    assert images.whole() is images.whole()
    assert torch.equal(images.batch(torch.arange(20)), before)
    assert len(images) == 20


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_images_of_any_number_of_channels_say_that_they_are_channels_last(shape):
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    found = channels_last(x)
    assert found.equal(x)
    assert found.stride()[1] == 1
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert nn.Conv2d(shape[0], 2, 3)(found).is_contiguous(memory_format=torch.channels_last)
    assert channels_last(found).data_ptr() == found.data_ptr()
