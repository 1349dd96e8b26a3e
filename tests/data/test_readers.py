import gzip
import hashlib
import pickle

import numpy as np
import pytest
import torch

from fl_platform.data import readers
from fl_platform.data.readers import DamagedFile


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (5, 3, 4), dtype=np.uint8)


def test_idx_is_read_compressed_or_not(tmp_path, pixels):
    (tmp_path / "a").write_bytes(idx(pixels))
    (tmp_path / "b.gz").write_bytes(gzip.compress(idx(pixels)))
    for name in ("a", "b"):
        assert np.array_equal(readers.read_idx(tmp_path / name, md5(idx(pixels))), pixels)


def test_idx_pair_gives_images_with_one_channel(tmp_path, pixels):
    labels = np.arange(5, dtype=np.uint8)
    contents = {"a": idx(pixels), "b": idx(labels), "c": idx(pixels[:2]), "d": idx(labels[:2])}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    train, test = readers.read_idx_pair(tmp_path, {name: md5(content) for name, content in contents.items()})
    assert torch.equal(train.features, torch.from_numpy(pixels)[:, None])
    assert train.labels.tolist() == [0, 1, 2, 3, 4]
    assert (len(test), test.features.shape) == (2, (2, 1, 3, 4))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:20] + b"\xff" + data[21:], lambda _: b""]
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_damaged_idx_is_refused_by_name(tmp_path, pixels, damage, ending):
    data = idx(pixels)
    file = tmp_path / f"train{ending}"
    file.write_bytes(damage(gzip.compress(data) if ending else data))
    with pytest.raises(DamagedFile, match=f"{file} is damaged"):
        readers.read_idx(tmp_path / "train", md5(data))


def test_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(DamagedFile, match=r"t10k cannot be read \(No such file"):
        readers.read_idx(tmp_path / "t10k", "0" * 32)


def test_cifar_pickles_in_the_original_layout(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (6, 3072), dtype=np.uint8)
    digests = {}
    for name, part in (("data_batch_1", slice(0, 2)), ("data_batch_2", slice(2, 4)), ("test_batch", slice(4, 6))):
        content = pickle.dumps({"data": data[part], "labels": [1, 9]}, protocol=2)
        (tmp_path / name).write_bytes(content)
        digests[name] = md5(content)
    train, test = readers.read_cifar_pickles(tmp_path, digests, "labels")
    assert torch.equal(train.features.flatten(1), torch.from_numpy(data[:4]))
    assert torch.equal(test.features[0, 2], torch.from_numpy(data[4, 2048:].reshape(32, 32)))
    assert train.labels.tolist() == [1, 9, 1, 9]


class Intruder:
    """Unpickling it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize(
    ("digests", "label_key"), [(readers.CIFAR10_PICKLE_MD5, "labels"), (readers.CIFAR100_PICKLE_MD5, "fine_labels")]
)
def test_a_tampered_pickle_is_not_executed(tmp_path, digests, label_key):
    for name in digests:
        (tmp_path / name).write_bytes(pickle.dumps(Intruder(tmp_path / "intruded")))
    with pytest.raises(DamagedFile, match="md5"):
        readers.read_cifar_pickles(tmp_path, digests, label_key)
    assert not (tmp_path / "intruded").exists()


def test_digits_are_split_once_and_for_all():
    train, test = readers.read_digits()
    assert (len(train), len(test)) == (1437, 360)
    assert train.features.max() == 255
    counts = torch.bincount(torch.cat((train.labels, test.labels)))
    assert (torch.bincount(test.labels) - counts * 360 / 1797).abs().max() < 1
    again, _ = readers.read_digits()
    assert torch.equal(train.features, again.features)


def test_a_file_with_the_published_md5_and_another_sha256_is_refused(tmp_path, monkeypatch):
    content = b"two contents can be made to have one md5"
    (tmp_path / "file").write_bytes(content)
    assert readers.read_verified(tmp_path / "file", md5(content)) == content
    monkeypatch.setitem(readers.SHA256, md5(content), "0" * 64)
    with pytest.raises(readers.DamagedFile, match=r"is not the published file: its md5 is, its sha256 .* is not"):
        readers.read_verified(tmp_path / "file", md5(content))
