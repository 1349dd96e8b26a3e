"""EMNIST, FEMNIST and CINIC-10 in their published layouts, on small files."""

import gzip
import json

import numpy as np
import pytest
from PIL import Image

from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data import datasets, locations
from fl_platform.data.prepare import partition_of, prepare
from fl_platform.data.sets.cinic10 import CLASSES
from fl_platform.errors import UserError


def write_idx(path, values):
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize(
    ("name", "split", "labels", "end"),
    [("emnist", "balanced", [0, 46, 3], "EMNIST/raw"), ("emnist_letters", "letters", [1, 26, 3], "gzip")],
)
def test_emnist_is_read_upright_compressed_or_not(tmp_path, name, split, labels, end):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 28, 28))
    suffix = ".gz" if end == "gzip" else ""
    for part in ("train", "test"):
        write_idx(tmp_path / end / f"emnist-{split}-{part}-images-idx3-ubyte{suffix}", pixels)
        write_idx(tmp_path / end / f"emnist-{split}-{part}-labels-idx1-ubyte{suffix}", np.array(labels))
    train, test = datasets.load(name, tmp_path)
    assert (train.features[:, 0].numpy() == pixels.swapaxes(1, 2)).all()
    assert test.labels.tolist() == [label - min(labels) for label in labels]


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x05ab", b"\0\0\x0d\x01\0\0\0\x01a"])
def test_idx_files_that_are_none_are_refused(tmp_path, content):
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "emnist-balanced-train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(UserError, match=r"images-idx3-ubyte is damaged: it is not an idx file .* or is incomplete"):
        datasets.load("emnist", tmp_path)


def write_leaf(folder, **users):
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": [*users],
        "num_samples": [len(labels) for labels in users.values()],
        "user_data": {u: {"x": [[y / 62] * 784 for y in labels], "y": labels} for u, labels in users.items()},
    }
    (folder / f"all_data_{len(list(folder.iterdir()))}.json").write_text(json.dumps(content))


def test_femnist_has_a_worker_per_writer(tmp_path):
    folder = tmp_path / "femnist" / "data"
    write_leaf(folder / "train", f0002=[5, 6, 7], f0001=[1, 2])
    write_leaf(folder / "train", f0009=[61, 0])
    write_leaf(folder / "test", f0009=[3], f0000=[4], f0001=[1])
    train, test = datasets.load("femnist", tmp_path)
    assert train.labels.tolist() == [1, 2, 5, 6, 7, 61, 0]
    assert train.owners.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert train.features[5].unique().tolist() == [round(61 / 62 * 255)]
    assert dict(zip(test.labels.tolist(), test.owners.tolist(), strict=True)) == {1: 0, 3: 2, 4: 3}  # f0000 is new
    config = resolve(compose(["data.name=femnist", f"data.root={tmp_path}", "cohort_size=2"])).config
    assert (config.data.partition, config.num_workers) == ("natural", 3)
    assert partition_of(config, prepare(config)[0]).sizes.tolist() == [2, 3, 2]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{}", "KeyError: 'user_data'"),
        ("[", "JSONDecodeError"),
        (json.dumps({"user_data": {"a": {"x": [[2.0] * 784], "y": [1]}}}), "a pixel is outside 0..1"),
        (json.dumps({"user_data": {"a": {"x": [[0.5] * 7], "y": [1]}}}), "cannot reshape"),
    ],
)
def test_json_that_leaf_did_not_write_is_refused(tmp_path, text, fault):
    folder = tmp_path / "femnist" / "data" / "train"
    folder.mkdir(parents=True)
    (folder / "all.json").write_text(text)
    with pytest.raises(UserError, match=f"all.json is not a file of LEAF's: .*{fault}"):
        datasets.load("femnist", tmp_path)


def test_cinic10_reads_a_folder_per_class(tmp_path, monkeypatch):
    monkeypatch.setattr(locations, "cache_directory", lambda: tmp_path / "cache")
    for part, count in (("train", 2), ("test", 1)):
        for label, name in enumerate(CLASSES):
            folder = tmp_path / "CINIC-10" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (32, 32), (20 * label, number, 7)).save(folder / f"{number}.png")
    Image.new("L", (32, 32), 9).save(tmp_path / "CINIC-10" / "test" / "truck" / "0.png")  # some are grey
    train, test = datasets.load("cinic10", tmp_path)
    assert train.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert train.features[5, :, 3, 4].tolist() == [40, 1, 7]
    assert test.features[9, :, 0, 0].tolist() == [9, 9, 9]
    (tmp_path / "CINIC-10" / "test" / "truck" / "0.png").unlink()
    with pytest.raises(UserError, match=r"truck holds no \.png file"):
        datasets.load("cinic10", tmp_path)
