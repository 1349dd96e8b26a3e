import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from fl_platform.config.compose import compose
from fl_platform.data import datasets
from fl_platform.data.datasets import Dataset
from fl_platform.data.image_set import ImageSet
from fl_platform.data.prepare import prepare, split_validation
from fl_platform.errors import UserError

SIZES = {
    "digits": (1437, 360),
    "mnist": (60000, 10000),
    "fashion_mnist": (60000, 10000),
    "cifar10": (50000, 10000),
    "cifar100": (50000, 10000),
}


@pytest.fixture
def empty_places(monkeypatch, tmp_path):
    """No data root and an empty user cache."""
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    monkeypatch.setattr(datasets, "cache_directory", lambda: tmp_path / "cache")
    return tmp_path


def squares(labels=(0, 1), dtype=torch.uint8, size=2) -> ImageSet:
    return ImageSet(torch.zeros(len(labels), 1, size, size, dtype=dtype), torch.tensor(labels))


@pytest.fixture
def outsider(monkeypatch):
    """A data set registered from outside, gone after the test."""
    monkeypatch.setattr(datasets.DATASETS, "_entries", dict(datasets.DATASETS._entries))
    dataset = Dataset(
        name="squares",
        description="two squares",
        num_classes=2,
        shape=(1, 2, 2),
        mean=(0.5,),
        std=(0.5,),
        load=lambda folder: (squares(), squares()),
    )
    datasets.register(dataset)
    return dataset


@pytest.mark.parametrize("name", datasets.names())
def test_descriptions_are_complete(name):
    dataset = datasets.get(name)
    assert dataset.name == name
    assert len(dataset.mean) == len(dataset.std) == dataset.shape[0]
    assert all(0 < value < 1 for value in dataset.mean + dataset.std + dataset.targets)
    assert dataset.evaluation_every == (5 if name == "tiny_imagenet" else 1)


@pytest.mark.parametrize("name", datasets.names())
def test_images_are_what_the_description_says(name):
    dataset = datasets.get(name)
    if dataset.folders and datasets.find(name) is None:
        pytest.skip(f"{name} is neither below $FL_DATA_ROOT nor in the user cache")
    train, test = datasets.load(name)
    if name in SIZES:
        assert (len(train), len(test)) == SIZES[name]
    assert tuple(train.images.shape[1:]) == dataset.shape
    assert len(torch.unique(train.labels)) == dataset.num_classes
    sample = train.images[:10000].double() / 255
    torch.testing.assert_close(sample.mean((0, 2, 3)), torch.tensor(dataset.mean).double(), rtol=0, atol=0.02)


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(UserError, match=r"data.name=mnits is not known; allowed: .*; did you mean 'mnist'\?"):
        datasets.load("mnits")


def test_an_outsider_registers_once(outsider):
    assert "squares" in datasets.names()
    assert len(datasets.load("squares")[0]) == 2
    with pytest.raises(UserError, match=r"data\.name=squares is registered already; choose another name"):
        datasets.register(outsider)


@pytest.mark.parametrize(
    ("images", "fault"),
    [
        (squares(labels=(0, 2)), "label 2 is outside 0..1"),
        (squares(labels=(-1, 0)), "label -1 is outside 0..1"),
        (squares(dtype=torch.float32), "images are torch.float32"),
        (squares(size=3), r"shape \(1, 3, 3\), expected torch.uint8 of shape \(1, 2, 2\)"),
        (squares(labels=(0.0, 1.0)), "labels are torch.float32"),
        (ImageSet(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0])), "one for each image"),
        (squares(labels=()), "labels are torch.float32"),
        (squares().subset(torch.zeros(0, dtype=torch.int64).numpy()), "there is no image"),
    ],
)
def test_wrong_arrays_are_refused(outsider, images, fault):
    broken = dataclasses.replace(outsider, name="broken", load=lambda folder: (squares(), images))
    datasets.register(broken)
    with pytest.raises(UserError, match=f"data.name=broken: in the test set of .*{fault}"):
        datasets.load("broken")


def test_places_are_searched_in_order(empty_places, monkeypatch):
    given, environment = empty_places / "given", empty_places / "environment"
    monkeypatch.setenv("FL_DATA_ROOT", str(environment))
    cache = datasets.cache_directory() / "data"
    assert datasets.find("mnist", given) is None
    for place in (cache, environment, given):
        (place / "MNIST" / "raw").mkdir(parents=True)
        assert datasets.find("mnist", given) == place / "MNIST" / "raw"
    assert datasets.find("mnist") == environment / "MNIST" / "raw"


def test_missing_data_names_the_command_and_the_places(empty_places):
    with pytest.raises(UserError) as raised:
        datasets.load("mnist", empty_places / "given")
    assert "`python -m fl_platform data get mnist`" in str(raised.value)
    assert str(empty_places / "given") in str(raised.value)
    assert str(datasets.cache_directory() / "data") in str(raised.value)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
        ("fashion_mnist", "FashionMNIST/raw/train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-batches-py/data_batch_1"),
        ("cifar10", "cifar-10-batches-bin/data_batch_1.bin"),
        ("cifar100", "cifar-100-python/train"),
        ("tiny_imagenet", "tiny-imagenet-200/wnids.txt"),
    ],
)
def test_damaged_files_name_themselves_and_the_command(empty_places, name, file):
    root = empty_places / "a root"
    (root / file).parent.mkdir(parents=True)
    (root / file).write_bytes(b"\xff not what was published")
    with pytest.raises(UserError) as raised:
        datasets.load(name, root)
    assert str(root / file) in str(raised.value)
    assert str(raised.value).endswith(f"`python -m fl_platform data get {name} --root '{root}'`")


def test_loading_mnist_does_not_import_torchvision():
    script = (
        "import sys; from fl_platform.data import datasets\n"
        "if datasets.find('mnist'): datasets.load('mnist')\n"
        "assert 'torchvision.datasets' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=dict(os.environ), timeout=60)


def test_validation_is_stratified_disjoint_and_seeded():
    labels = torch.tensor([0] * 100 + [1] * 50 + [2] * 10)
    everything = ImageSet(torch.arange(160, dtype=torch.uint8).view(160, 1, 1, 1), labels)
    train, validation = split_validation(everything, 0.1, seed=0)
    assert torch.bincount(validation.labels).tolist() == [10, 5, 1]
    assert sorted(torch.cat((train.images, validation.images)).flatten().tolist()) == list(range(160))
    assert torch.equal(split_validation(everything, 0.1, seed=0)[1].images, validation.images)
    assert not torch.equal(split_validation(everything, 0.1, seed=1)[1].images, validation.images)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_a_validation_share_of_nothing_or_everything_is_refused(fraction):
    with pytest.raises(UserError, match=f"data.validation_fraction={fraction:g} holds out"):
        split_validation(squares(), fraction, seed=0)


def test_prepare_evaluates_the_test_set_or_the_validation_share():
    train, test = prepare(compose([]))
    assert (len(train), len(test)) == (1437, 360)
    kept, held = prepare(compose(["data.validation_fraction=0.2"]))
    assert (len(kept), len(held)) == (1150, 287)
