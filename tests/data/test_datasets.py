import os
import re
import subprocess
import sys
import types

import numpy as np
import pytest
import torch

from fl_platform.config.compose import compose
from fl_platform.data import datasets, locations
from fl_platform.data.prepare import prepare, split_validation
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.errors import UserError

OWN = sorted(datasets.DATASETS.built_in())
"""Without what plugins of other tests have registered."""
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
    monkeypatch.setattr(locations, "cache_directory", lambda: tmp_path / "cache")
    return tmp_path


def squares(labels=(0, 1), dtype=torch.uint8, size=2) -> Samples:
    return Samples(torch.zeros(len(labels), 1, size, size, dtype=dtype), torch.tensor(labels))


def define(name="squares", test=None, kind="Squares", **fields):
    """Register a data set of two squares from outside, with other fields."""
    fields = {
        "num_classes": 2,
        "shape": (1, 2, 2),
        "load": lambda self, folder: (squares(), squares() if test is None else test),
    } | fields
    return types.new_class(kind, (Dataset,), {"name": name}, lambda body: body.update(fields))


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is gone after it."""
    datasets.DATASETS.load()
    monkeypatch.setattr(datasets.DATASETS, "_entries", dict(datasets.DATASETS._entries))


@pytest.mark.parametrize("name", OWN)
def test_descriptions_are_complete(name):
    dataset = datasets.get(name)
    assert dataset.name == name
    assert dataset.description
    assert "\n" not in dataset.description
    assert all(0 < value < 1 for value in dataset.targets)
    if dataset.features == "images":
        assert len(dataset.mean) == len(dataset.std) == dataset.shape[0]
        assert all(0 < value < 1 for value in dataset.mean + dataset.std)


@pytest.mark.parametrize("name", OWN)
def test_samples_are_what_the_description_says(name):
    dataset = datasets.get(name)
    if dataset.folders and datasets.find(name) is None:
        pytest.skip(f"{name} is neither below $FL_DATA_ROOT nor in the user cache")
    train, test = datasets.load(name)
    if name in SIZES:
        assert (len(train), len(test)) == SIZES[name]
    assert tuple(train.features.shape[1:]) == dataset.shape
    assert train.num_owners == (dataset.num_owners or 0)
    if dataset.features == "images":
        assert len(torch.unique(train.labels)) == dataset.num_classes
        sample = train.features[:10000].double() / 255
        torch.testing.assert_close(sample.mean((0, 2, 3)), torch.tensor(dataset.mean).double(), rtol=0, atol=0.02)


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(UserError, match=r"data.name=mnits is not known; allowed: .*; did you mean 'mnist'\?"):
        datasets.load("mnits")


def test_an_outsider_registers_once(registry):
    define()
    assert "squares" in datasets.names()
    assert len(datasets.load("squares")[0]) == 2
    with pytest.raises(UserError, match=r"data\.name=squares is registered already; choose another name"):
        define(kind="Others")


@pytest.mark.parametrize(
    ("samples", "fault"),
    [
        (squares(labels=(0, 2)), "label 2 is outside 0..1"),
        (squares(labels=(-1, 0)), "label -1 is outside 0..1"),
        (squares(dtype=torch.float32), "features are torch.float32"),
        (squares(size=3), r"shape \(1, 3, 3\), expected torch.uint8 of shape \(1, 2, 2\)"),
        (squares(labels=(0.0, 1.0)), "labels are torch.float32"),
        (Samples(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0])), "labels .* one for each sample"),
        (Samples(squares().features, squares().labels, torch.tensor([0])), "owners .* one for each sample"),
        (Samples(squares().features, squares().labels, torch.tensor([0, -2])), "owner -2 is negative"),
        (squares(labels=()), "labels are torch.float32"),
        (squares().subset(torch.zeros(0, dtype=torch.int64).numpy()), "there is no sample"),
    ],
)
def test_wrong_images_are_refused(registry, samples, fault):
    define("broken", samples)
    with pytest.raises(UserError, match=f"data.name=broken: in the test set, .*{fault}"):
        datasets.load("broken")


@pytest.mark.parametrize(
    ("kind", "features", "fault"),
    [
        (
            "numbers",
            [[1.0, 2.0], [3.0, float("nan")]],
            "1 samples .* not finite; the first is sample 1",
        ),
        ("numbers", [[float("-inf"), 2.0], [3.0, 4.0]], "not finite; the first is sample 0"),
        ("numbers", [[1, 2], [3, 4]], "features are torch.int64 .* expected a floating dtype"),
        ("tokens", [[1, 2], [3, 5]], "token 5 is outside 0..4"),
        ("tokens", [[1, 2], [-1, 0]], "token -1 is outside 0..4"),
        ("tokens", [[1.0, 2.0], [3.0, 0.0]], "expected an integer dtype of shape"),
        ("tokens", [[True, False], [True, True]], "features are torch.bool"),
    ],
)
def test_wrong_numbers_and_tokens_are_refused(kind, features, fault):
    samples = Samples(torch.tensor(features), torch.tensor([0, 1]))
    assert re.search(fault, samples.fault(kind, (2,), 2, 5))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_tokens_may_have_any_integer_dtype(dtype):
    assert Samples(torch.tensor([[0, 4]], dtype=dtype), torch.tensor([1])).fault("tokens", (2,), 2, 5) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": "pictures"}, "features=pictures is not known; allowed: images, numbers, tokens"),
        ({"features": "tokens"}, "num_tokens=0 with features=tokens"),
        ({"num_tokens": 3}, "num_tokens=3 with features=images"),
        ({"shape": (4,)}, r"shape=\(4,\) is not \(channels, height, width\)"),
        ({"std": (0.0,)}, "std=.* is not one positive number"),
        ({"std": ("a",)}, "std=.* is not one positive number"),
        ({"std": (float("nan"),)}, "std=.* is not one positive number"),
        ({"mean": (None,)}, "mean=.* is not one number, or 1 of them"),
        ({"targets": None}, r"targets=None is not a tuple of accuracies, such as \(0.9,\)"),
        ({"crop_padding": -1}, "crop_padding=-1 is not a number of pixels, 0 or more"),
        ({"mean": (0.1, 0.2)}, "mean=.* is not one number, or 1 of them"),
        ({"mean": 0.5}, r"mean=0.5 is not a tuple of numbers, such as \(0.5,\)"),
        ({"shape": ()}, r"shape=\(\) is not a tuple of positive integers"),
        ({"shape": 5, "features": "numbers"}, "shape=5 is not a tuple of positive integers"),
        ({"shape": (1, 0, 2)}, r"shape=\(1, 0, 2\) is not a tuple of positive integers"),
        ({"num_classes": 0}, "num_classes=0 is not a positive integer"),
    ],
)
def test_descriptions_that_contradict_themselves_are_refused(registry, fields, message):
    with pytest.raises(UserError, match=f"data.name=odd: {message}"):
        define("odd", **fields)
    assert "odd" not in datasets.names()


@pytest.mark.parametrize(
    ("features", "labels", "owners", "message"),
    [
        ([["a"], ["b"]], [0, 1], None, "features are <U1; they must be numbers"),
        ([[0.5], [1.5]], ["no", "yes"], None, "labels are <U3; they must be whole numbers from 0 on"),
        ([[0.5], [1.5]], [0, 0.5], None, "labels contain 0.5; they must be whole numbers"),
        ([[0.5], [1.5]], [0, float("nan")], None, "labels contain nan; they must be whole numbers"),
        ([[0.5], [1.5]], [0, 1], ["ann", "bob"], "owners are <U3; they must be whole numbers"),
    ],
)
def test_arrays_of_text_and_fractions_are_refused(features, labels, owners, message):
    with pytest.raises(UserError, match=f"Samples.from_arrays: {message}"):
        Samples.from_arrays(np.array(features), labels, owners)


def test_arrays_may_be_reversed_read_only_or_in_another_byte_order():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    shared = Samples.from_arrays(table, [0.0, 1.0])
    assert shared.features.data_ptr() == table.ctypes.data
    assert shared.labels.tolist() == [0, 1]
    constant = table.copy()
    constant.flags.writeable = False
    for given, expected in ((table[:, ::-1], [2, 1, 0]), (constant, [0, 1, 2]), (table.astype(">f4"), [0, 1, 2])):
        found = Samples.from_arrays(given, [0, 1]).features
        assert found.dtype == torch.float32
        assert found[0].tolist() == expected


@pytest.mark.parametrize(
    ("loaded", "shown"),
    [(None, "NoneType"), (squares(), "Samples"), ((squares(),), r"\(Samples\)"), (([1], [2]), r"\(list, list\)")],
)
def test_what_load_returns_is_checked(registry, loaded, shown):
    define("strange", load=lambda self, folder: loaded)
    with pytest.raises(UserError, match=rf"data.name=strange: load of \w+ must return two Samples, .* not {shown}$"):
        datasets.load("strange")


def test_a_class_without_a_shape_or_load_is_refused_by_name(registry):
    with pytest.raises(UserError, match=r"data\.name=bare: class Bare sets no shape"):
        types.new_class("Bare", (Dataset,), {"name": "bare"}, lambda body: body.update(num_classes=2))
    with pytest.raises(UserError, match=r"data\.name=bare: class Bare has no method load\(folder\)"):
        types.new_class("Bare", (Dataset,), {"name": "bare"}, lambda body: body.update(num_classes=2, shape=(3,)))


def test_places_are_searched_in_order(empty_places, monkeypatch):
    given, environment = empty_places / "given", empty_places / "environment"
    monkeypatch.setenv("FL_DATA_ROOT", str(environment))
    for place in (locations.cache_directory() / "data", environment):
        (place / "MNIST" / "raw").mkdir(parents=True)
        assert datasets.find("mnist") == place / "MNIST" / "raw"
    assert datasets.find("mnist", given) is None, "a data.root that is given is the only place"
    (given / "MNIST" / "raw").mkdir(parents=True)
    assert datasets.find("mnist", given) == given / "MNIST" / "raw"


def test_missing_data_names_the_command_and_the_places(empty_places):
    with pytest.raises(UserError) as raised:
        datasets.load("mnist")
    assert "`python -m fl_platform data get mnist`" in str(raised.value)
    assert str(locations.cache_directory() / "data") in str(raised.value)
    with pytest.raises(UserError) as raised:
        datasets.load("mnist", empty_places / "given")
    assert f"(looked in {empty_places / 'given'})" in str(raised.value)
    assert f"data get mnist --root {empty_places / 'given'}`" in str(raised.value)


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
    everything = Samples(torch.arange(160, dtype=torch.uint8).view(160, 1, 1, 1), labels)
    train, validation = split_validation(everything, 0.1, seed=0)
    assert torch.bincount(validation.labels).tolist() == [10, 5, 1]
    assert sorted(torch.cat((train.features, validation.features)).flatten().tolist()) == list(range(160))
    assert torch.equal(split_validation(everything, 0.1, seed=0)[1].features, validation.features)
    assert not torch.equal(split_validation(everything, 0.1, seed=1)[1].features, validation.features)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_a_validation_share_of_nothing_or_everything_is_refused(fraction):
    with pytest.raises(UserError, match=f"data.validation_fraction={fraction:g} holds out"):
        split_validation(squares(), fraction, seed=0)


def test_prepare_evaluates_the_test_set_or_the_validation_share():
    train, test = prepare(compose([]))
    assert (len(train), len(test)) == (1437, 360)
    kept, held = prepare(compose(["data.validation_fraction=0.2"]))
    assert (len(kept), len(held)) == (1150, 287)
