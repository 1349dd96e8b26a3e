import json

import numpy as np
import pytest

from fl_platform.cli import data as data_command
from fl_platform.config.compose import compose
from fl_platform.config.partition_file import read_split
from fl_platform.config.resolve import resolve
from fl_platform.data.prepare import partition_of, prepare
from fl_platform.errors import UserError

MADE = ["data.name=wine", "num_workers=12", "data.partition=quantity"]


def save(path, *keys):
    picture = path.with_suffix(".png")
    assert data_command.main(["partition", *MADE, *keys, "--save", str(path), "--out", str(picture)]) == 0
    return path


@pytest.fixture(scope="module", params=["json", "parquet"])
def saved(request, tmp_path_factory):
    """A saved partition in one of the formats."""
    return save(tmp_path_factory.mktemp("split") / f"split.{request.param}")


def resolved(*keys):
    return resolve(compose(["data.name=wine", *keys]))


def test_a_saved_partition_is_the_same_split_whatever_the_seed(saved):
    made = resolve(compose(MADE)).config
    read = resolved(f"data.partition_file={saved}").config
    other_seed = resolved(f"data.partition_file={saved}", "seed=7").config
    assert (read.data.partition, read.num_workers) == ("file", 12)
    train, _ = prepare(made)
    expected = partition_of(made, train)
    for config in (read, other_seed):
        found = partition_of(config, train)
        assert np.array_equal(found.indices, expected.indices)
        assert np.array_equal(found.offsets, expected.offsets)


def test_the_content_and_not_the_path_names_the_run(saved, tmp_path):
    here = resolved(f"data.partition_file={saved}")
    copy = tmp_path / f"elsewhere{saved.suffix}"
    copy.write_bytes(saved.read_bytes())
    assert resolved(f"data.partition_file={copy}").run_id == here.run_id
    digest = read_split(str(saved)).sha256
    assert here.config.data.partition_sha256 == digest
    assert here.run_id != resolve(compose(MADE)).run_id
    assert f"file{digest[:8]} S10" in here.group
    other = save(tmp_path / "other.json", "seed=1")
    assert resolved(f"data.partition_file={other}").run_id != here.run_id
    with pytest.raises(UserError, match=r"has other content than data\.partition_sha256="):
        resolved(f"data.partition_file={other}", f"data.partition_sha256={digest}")


def test_a_digest_without_a_file_is_refused():
    with pytest.raises(UserError, match=r"data.partition_sha256=ab12 with data.partition=dirichlet: .* there is none"):
        resolved("data.partition_sha256=ab12")


def test_both_formats_say_the_same(tmp_path):
    assert len({read_split(str(save(tmp_path / f"split.{suffix}"))).sha256 for suffix in ("json", "parquet")}) == 1


def test_what_contradicts_the_file_is_refused(saved):
    file = f"data.partition_file={saved}"
    with pytest.raises(UserError, match=r"num_workers=5 does not go with .* which has 12 workers"):
        resolved(file, "num_workers=5", "cohort_size=2")
    with pytest.raises(UserError, match=r"data\.partition=iid with data\.partition_file=.* go together"):
        resolved(file, "data.partition=iid")
    with pytest.raises(UserError, match=r"data\.partition=file with data\.partition_file=null"):
        resolved("data.partition=file")
    other = resolve(compose([file, "data.name=breast_cancer"])).config
    with pytest.raises(UserError, match=r"divides the training samples of wine .* and these 455 are others"):
        partition_of(other, prepare(other)[0])
    smaller = resolved(file, "data.validation_fraction=0.2").config
    with pytest.raises(UserError, match=r"data\.name, data\.validation_fraction and its seed must be as they were"):
        partition_of(smaller, prepare(smaller)[0])


def spoilt(**changes):
    """The text of a small file with changes."""
    content = {
        "format": "fl_platform partition 1",
        "data": "wine",
        "about": "",
        "labels_sha256": "0",
        "workers": [[0, 1], [2, 3]],
    }
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "cannot be read"),
        ("[1, 2]", "it does not say 'format'"),
        (spoilt(format="other"), "it does not say 'format'"),
        (spoilt(workers=[[0, 1], [1, 2]]), "is damaged: a sample has two workers"),
        (spoilt(workers=[[0, 1], [2]]), "is damaged: worker 1 has fewer than 2 samples"),
        (spoilt(workers=[[0, 1], [-2, 3]]), "is damaged: sample -2 is negative"),
        (spoilt(workers=[[0, 1.5], [2, 3]]), "not a list of lists of sample numbers"),
        (spoilt(workers=[]), "not a list of lists of sample numbers"),
        (spoilt(workers=7), "cannot be read"),
        (json.dumps({"format": "fl_platform partition 1", "workers": [[0, 1]]}), "cannot be read: 'data'"),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(tmp_path, text, fault):
    path = tmp_path / "split.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"data\.partition_file=.*split\.json.*{fault}") as raised:
        resolved(f"data.partition_file={path}")
    assert "\n" not in str(raised.value)


def test_missing_files_other_suffixes_and_damaged_parquet_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"data\.partition_file=.*absent\.json: no such file"):
        resolved(f"data.partition_file={tmp_path / 'absent.json'}")
    with pytest.raises(UserError, match=r"must end in \.json or \.parquet, not in '\.csv'"):
        resolved("data.partition_file=split.csv")
    broken = tmp_path / "split.parquet"
    broken.write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match=r"data\.partition_file=.* cannot be read"):
        resolved(f"data.partition_file={broken}")
    with pytest.raises(UserError, match=r"--save .*split\.txt: the file must end in"):
        data_command.main(["partition", *MADE, "--save", str(tmp_path / "split.txt")])
