from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_platform.cli import main
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.data import locations
from fl_platform.data.prepare import partition_of, prepare


@pytest.fixture(autouse=True)
def empty_places(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    monkeypatch.setattr(locations, "cache_directory", lambda: tmp_path / "cache")


def test_list_says_what_is_where(capsys, tmp_path):
    raw = tmp_path / "root" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-labels-idx1-ubyte").write_bytes(bytes(2_500_000))
    assert main(["data", "list", "--root", str(tmp_path / "root")]) == 0
    out = capsys.readouterr().out
    assert f"{raw} (2.5 MB)" in out
    assert "missing; `python -m fl_platform data get cifar10`" in out
    assert "missing; put its published files in" in out  # of EMNIST, which is not fetched
    assert "built in" in out


def test_partition_prints_what_a_run_would_deal(capsys):
    args = ["data.dirichlet_omega=0.05", "num_workers=30", "seed=4"]
    assert main(["data", "partition", *args]) == 0
    lines = capsys.readouterr().out.splitlines()
    config = resolve(compose(args)).config
    train = prepare(config)[0]
    partition = partition_of(config, train)
    counts = partition.class_counts(train.labels, 10)
    assert lines[0] == "digits, dirichlet 0.05, 30 workers, seed 4"
    for worker, line in enumerate(lines[2:32]):
        number, samples, classes, *cells = line.split()
        assert (int(number), int(samples)) == (worker, partition.sizes[worker])
        assert int(classes) == np.count_nonzero(counts[worker])
        assert {int(label): int(count) for label, count in (cell.split(":") for cell in cells)} == {
            label: count for label, count in enumerate(counts[worker]) if count
        }
    sizes = partition.sizes
    assert lines[32] == "samples of a worker: number of workers"
    bars = [line.split() for line in lines[33:] if "to" in line.split()]
    assert sum(int(bar[3]) for bar in bars) == 30
    for low, _, high, count, *_ in bars:
        assert int(count) == ((sizes >= int(low)) & (sizes <= int(high))).sum()
    summary = dict(line.split(": ") for line in lines[33 + len(bars) :])
    assert summary["picture"] == "partition-digits.png"
    assert Path("partition-digits.png").read_bytes().startswith(b"\x89PNG")
    assert summary["samples"] == "1437"
    assert summary["samples per worker"].startswith(f"median {np.median(sizes):g},")
    assert summary["workers with fewer than batch_size=64"] == f"{(sizes < 64).mean():.0%}"
    assert summary["effective workers, 1 / sum q^2"] == f"{1437**2 / (sizes**2).sum():.1f}"


def test_partition_honours_the_validation_share(capsys):
    assert main(["data", "partition", "data.validation_fraction=0.2", "num_workers=10"]) == 0
    assert "samples: 1150" in capsys.readouterr().out.splitlines()


def test_long_tables_are_cut(capsys):
    assert main(["data", "partition", "num_workers=500"]) == 0
    assert "... and 300 more workers" in capsys.readouterr().out


@pytest.mark.parametrize("args", [["data.partition=iid"], ["num_workers=10"], ["num_workers=600"]])
def test_the_bubble_plot_is_an_image_with_bubbles(tmp_path, args):
    out = tmp_path / "new" / "bubbles.png"
    assert main(["data", "partition", *args, "--out", str(out)]) == 0
    with Image.open(out) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    is_blue = (pixels[..., 2] - pixels[..., 0]) > 40
    assert is_blue.mean() > 0.002


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["partition", "num_workers=1000"], "num_workers=1000 is not possible with 1437 training samples"),
        (["partition", "data.name=mnist"], "data get mnist"),
        (["partition", "num_wrokers=5"], "did you mean 'num_workers'"),
        (["partition", "--out", "bubbles.xyz"], "--out bubbles.xyz cannot be written"),
        (["get", "mnits"], "did you mean 'mnist'"),
        (["get", "digits"], "needs no files"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(capsys, args, message):
    assert main(["data", *args]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("args", [["--help"], ["list", "--help"], ["get", "--help"], ["partition", "--help"]])
def test_help(capsys, args):
    with pytest.raises(SystemExit) as left:
        main(["data", *args])
    assert left.value.code == 0
    assert "usage: fl_platform data" in capsys.readouterr().out
