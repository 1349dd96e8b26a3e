import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from fl_platform.data import datasets, fetch
from fl_platform.data.readers import read_verified
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
from fl_platform.errors import UserError

CONTENT = bytes(range(10))
MD5 = "c56bd5480f6e5413cb62a0ad9666613a"


def read_dots(folder):
    pixels = np.frombuffer(read_verified(folder / "dots", MD5), np.uint8).reshape(-1, 1, 1, 1).copy()
    dots = Samples.from_arrays(pixels, np.arange(10))
    return dots, dots


def writes(content, folder="dots/raw"):
    def lay_out(staging):
        (staging / folder).mkdir(parents=True)
        (staging / folder / "dots").write_bytes(content)

    return lay_out


def fails(staging):
    raise OSError("no route")


@pytest.fixture
def sources(monkeypatch):
    """A data set of ten dots; what the function is given are its sources."""
    datasets.DATASETS.load()  # what is imported later would be forgotten with the copy
    monkeypatch.setattr(datasets.DATASETS, "_entries", dict(datasets.DATASETS._entries))

    class Dots(Dataset, name="dots"):
        """Ten dots."""

        num_classes = 10
        shape = (1, 1, 1)
        folders = ("dots/raw", "dots-other")

        def load(self, folder):
            return read_dots(folder)

    def give(**functions):
        monkeypatch.setitem(fetch.SOURCES, "dots", tuple(functions.items()))

    return give


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_the_first_source_that_verifies_is_moved_into_place(sources, tmp_path, capsys):
    sources(broken=fails, damaged=writes(CONTENT[:-1]), good=writes(CONTENT), unused=fails)
    root = tmp_path / "new" / "root"
    assert fetch.fetch("dots", root) == root / "dots" / "raw"
    assert files(root) == ["dots/raw/dots"]
    assert len(datasets.load("dots", root)[0]) == 10
    out = capsys.readouterr().out
    assert "broken failed: no route" in out
    assert "damaged failed" in out
    assert "10 training and 10 test samples, verified" in out
    assert "unused" not in out


def test_verified_data_is_not_fetched_again(sources, tmp_path, capsys):
    sources(good=writes(CONTENT))
    fetch.fetch("dots", tmp_path)
    sources(broken=fails)
    assert fetch.fetch("dots", tmp_path) == tmp_path / "dots" / "raw"
    assert "already in" in capsys.readouterr().out


def test_damaged_data_is_replaced_whatever_its_format(sources, tmp_path, capsys):
    writes(b"damaged")(tmp_path)
    sources(good=writes(CONTENT, "dots-other"))
    assert fetch.fetch("dots", tmp_path) == tmp_path / "dots-other"
    assert files(tmp_path) == ["dots-other/dots"]
    assert datasets.find("dots", tmp_path) == tmp_path / "dots-other"
    said = capsys.readouterr().out
    assert "is damaged" in said
    assert "getting it again" in said
    assert "fetch it again" not in said  # the advice for a person is left out


def test_when_no_source_answers_nothing_is_left_and_the_place_is_named(sources, tmp_path):
    writes(b"damaged")(tmp_path)
    sources(damaged=writes(b"other"), broken=fails)
    with pytest.raises(
        UserError, match=r"'dots' could not be fetched; put its published files in .*dots/raw or .*dots-other"
    ):
        fetch.fetch("dots", tmp_path)
    assert (tmp_path / "dots" / "raw" / "dots").read_bytes() == b"damaged"
    assert files(tmp_path) == ["dots/raw/dots"]


def test_a_root_that_cannot_be_written_is_named(sources, tmp_path):
    (tmp_path / "file").write_text("")
    sources(good=writes(CONTENT))
    with pytest.raises(UserError, match=r"--root .*file/root cannot be written"):
        fetch.fetch("dots", tmp_path / "file" / "root")


def test_built_in_data_needs_no_fetching(tmp_path):
    with pytest.raises(UserError, match="'digits' needs no files"):
        fetch.fetch("digits", tmp_path)


BY_HAND = {"emnist", "emnist_letters", "femnist", "cinic10"}


def test_every_published_set_with_files_has_a_source_or_says_where_its_files_belong(tmp_path):
    assert set(fetch.SOURCES) | BY_HAND == {name for name in datasets.names() if datasets.get(name).folders}
    for name in BY_HAND:
        with pytest.raises(UserError, match=f"data set '{name}' could not be fetched; put its published files in"):
            fetch.fetch(name, tmp_path)


def test_an_archive_cannot_write_outside_its_folder(tmp_path):
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as content:
        member = tarfile.TarInfo("../escaped")
        member.size = 4
        content.addfile(member, io.BytesIO(b"evil"))
    (tmp_path / "inside").mkdir()
    with pytest.raises(tarfile.TarError):
        fetch.extract(archive, tmp_path / "inside")
    assert not (tmp_path / "escaped").exists()


def test_rows_of_a_png_become_binary_records(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1024, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "batch.png")
    records = fetch.binary_batch(tmp_path / "batch.png", np.array([4, 0, 9], np.uint8))
    assert records.shape == (3, 3073)
    assert records[:, 0].tolist() == [4, 0, 9]
    assert np.array_equal(records[1, 1 + 1024 : 1 + 2048], pixels[1, :, 1])


def test_a_failing_program_says_its_last_words(tmp_path):
    with pytest.raises(fetch.subprocess.SubprocessError, match="sh exited with 3: gone"):
        fetch.run("sh", "-c", "echo first >&2; echo gone >&2; exit 3", directory=tmp_path)
