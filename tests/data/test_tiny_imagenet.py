import os

import numpy as np
import pytest
from PIL import Image

from fl_platform.data.readers import DamagedFile
from fl_platform.data.tiny_imagenet import read_tiny_imagenet

CLASSES = ("n02", "n01")


def write_image(path, value, size=(64, 64), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path, format="JPEG", quality=95)


@pytest.fixture
def folder(tmp_path):
    """Two classes with two training images each (one of them grey) and one validation image each."""
    root = tmp_path / "tiny-imagenet-200"
    for name, shade in zip(CLASSES, (200, 40), strict=True):
        write_image(root / "train" / name / "images" / f"{name}_0.JPEG", (shade, shade, shade))
        write_image(root / "train" / name / "images" / f"{name}_1.JPEG", shade, mode="L")
        write_image(root / "val" / "images" / f"val_{name}.JPEG", (shade, shade, shade))
    (root / "wnids.txt").write_text("\n".join(CLASSES) + "\n")
    (root / "val" / "val_annotations.txt").write_text(
        "".join(f"val_{name}.JPEG\t{name}\t0\t0\t63\t63\n" for name in CLASSES)
    )
    return root


def read(folder):
    return read_tiny_imagenet(folder, folder.parent / "cache")


def test_classes_are_numbered_in_the_order_of_their_names(folder):
    train, validation = read(folder)
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert validation.labels.tolist() == [1, 0]
    assert train.features.shape == (4, 3, 64, 64)
    assert train.features[:, :, 5, 5].tolist() == [[40] * 3] * 2 + [[200] * 3] * 2
    assert validation.features[:, 0, 0, 0].tolist() == [200, 40]


def test_decoded_images_are_kept_and_an_edited_file_is_decoded_again(folder):
    train, _ = read(folder)
    (stored,) = (folder.parent / "cache").iterdir()
    with np.load(stored) as arrays:
        np.savez(stored, train=arrays["train"] + 1, validation=arrays["validation"])
    assert (read(folder)[0].features == train.features + 1).all()  # served from the cache
    edited = folder / "train" / "n01" / "images" / "n01_0.JPEG"
    write_image(edited, (90, 90, 90))
    os.utime(edited, (1, 1))
    assert read(folder)[0].features[0, 0, 0, 0] == 90


def test_a_broken_cache_is_made_again(folder):
    train, _ = read(folder)
    (stored,) = (folder.parent / "cache").iterdir()
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    stored.write_bytes(content)
    assert (read(folder)[0].features == train.features).all()


def test_an_unwritable_cache_only_costs_time(folder):
    (folder.parent / "cache").write_text("a file where the cache should be")
    assert len(read(folder)[0]) == 4


def test_a_truncated_image_is_refused_by_name(folder):
    broken = folder / "train" / "n02" / "images" / "n02_1.JPEG"
    broken.write_bytes(broken.read_bytes()[:-200])
    with pytest.raises(DamagedFile, match=r"n02_1.JPEG is damaged"):
        read(folder)


def test_an_image_of_another_size_is_refused_by_name(folder):
    write_image(folder / "val" / "images" / "val_n01.JPEG", (0, 0, 0), size=(32, 48))
    with pytest.raises(DamagedFile, match=r"val_n01.JPEG is damaged: 32 x 48 pixels, expected 64 x 64"):
        read(folder)


def test_missing_images_are_refused_by_name(folder):
    (folder / "val" / "images" / "val_n01.JPEG").unlink()
    with pytest.raises(DamagedFile, match=r"val_n01.JPEG cannot be read"):
        read(folder)
    for file in (folder / "train" / "n01" / "images").iterdir():
        file.unlink()
    with pytest.raises(DamagedFile, match=r"holds no .JPEG file"):
        read(folder)


@pytest.mark.parametrize(
    ("text", "fault"), [("val_n01.JPEG\tn99\t0\t0\t63\t63\n", "unknown class n99"), ("v", "incomplete")]
)
def test_damaged_annotations_are_refused_by_name(folder, text, fault):
    (folder / "val" / "val_annotations.txt").write_text(text)
    with pytest.raises(DamagedFile, match=f"val_annotations.txt is damaged: .*{fault}"):
        read(folder)


def test_a_missing_class_list_is_refused_by_name(folder):
    (folder / "wnids.txt").unlink()
    with pytest.raises(DamagedFile, match=r"wnids.txt cannot be read"):
        read(folder)
