"""``export``: what it writes can be used without the platform, and reading it executes nothing."""

import hashlib
import json

import pytest
import torch

import fl_platform as fl
from fl_platform.cli import export as command
from fl_platform.cli import main
from fl_platform.config.compose import compose
from fl_platform.data.prepare import prepare
from fl_platform.federation.export import FORMATS

QUICK = {"num_workers": 10, "cohort_size": 3, "local_steps": 1, "num_rounds": 4, "tracking.mode": "disabled"}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    keys = {**QUICK, "output.dir": tmp_path_factory.mktemp("runs"), "checkpoint.keep_best": True}
    return fl.run(keys, algorithm="gradma", progress=False, **{"algorithm.memory_size": 5})


@pytest.fixture(scope="module")
def images():
    _, test = prepare(compose([]))
    return test.features, test.labels


def export(result, tmp_path, *args):
    path = tmp_path / "model.pt"
    assert main(["export", str(result.directory), "--to", str(path), *args]) == 0
    return path, json.loads((tmp_path / "model.pt.json").read_text())


def accuracy(logits, labels):
    return float((logits.argmax(1) == labels).double().mean())


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_state_dict_is_plain_tensors_and_the_card_says_how_to_use_it(which, result, images, tmp_path, capsys):
    path, card = export(result, tmp_path, "--which", which)
    assert capsys.readouterr().out.splitlines() == [str(path), f"{path}.json"]
    values = torch.load(path, weights_only=True)
    network = result.model(which).network
    network.load_state_dict(values)
    mean, std = (torch.tensor(card["data"][name]).view(-1, 1, 1) for name in ("mean", "std"))
    found = accuracy(network((images[0] / 255 - mean) / std), images[1])
    assert found == card["accuracy"] == result.summary[f"test/{'top' if which == 'best' else 'final'}_accuracy"]
    assert card["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (card["which"], card["run"], card["method"]["label"]) == (which, result.run_id, "GradMA")
    assert card["round"] == (result.summary["test/top_accuracy_round"] if which == "best" else 4)
    assert card["configuration"]["algorithm"]["memory_size"] == 5


def test_torchscript_takes_raw_images_of_both_kinds(result, images, tmp_path, recwarn):
    path, _ = export(result, tmp_path, "--format", "torchscript")
    assert not recwarn.list
    with pytest.warns(DeprecationWarning, match=r"torch\.jit\.load"):
        program = torch.jit.load(path)
    model = result.model()
    assert torch.equal(program(images[0]), model(images[0]))
    torch.testing.assert_close(program(images[0] / 255), model(images[0]))


def test_an_exported_program_takes_any_number_of_images(result, images, tmp_path):
    path, card = export(result, tmp_path, "--format", "exported_program")
    program = torch.export.load(path).module()
    torch.testing.assert_close(program(images[0][:7] / 255), result.model()(images[0][:7]))
    assert "floating point in [0, 1]" in card["input"]


def test_the_command_offers_what_there_is():
    assert tuple(FORMATS) == command.FORMATS


def test_a_hostile_name_stays_text_in_the_card(tmp_path):
    name = "</script>\x1b[31m\u202e<img src=x onerror=alert(1)>"
    result = fl.run(QUICK, output={"dir": tmp_path / "runs"}, tracking={"tags": [name]}, progress=False)
    _, card = export(result, tmp_path)
    assert card["configuration"]["tracking"]["tags"] == [name]
    raw = (tmp_path / "model.pt.json").read_bytes()
    assert b"\x1b" not in raw
    assert raw.isascii()


def refused(capsys, *args):
    assert main(["export", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_what_cannot_be_exported_is_one_sentence(result, tmp_path, capsys):
    assert "is not the directory of a run" in refused(capsys, "0123456789ab", "--out", str(tmp_path / "model.pt"))
    assert "is a directory; give a file" in refused(capsys, str(result.directory), "--to", str(tmp_path))
    assert "cannot be written" in refused(capsys, str(result.directory), "--to", "/dev/null/model.pt")
    assert not list(tmp_path.iterdir())


def test_a_run_is_found_by_its_id(result, tmp_path):
    args = [result.run_id, "--runs", str(result.directory.parent), "--to", str(tmp_path / "model.pt")]
    assert main(["export", *args]) == 0


def test_a_checkpoint_with_code_in_it_is_refused_before_any_of_it_runs(tmp_path, capsys):
    result = fl.run(QUICK, output={"dir": tmp_path / "runs"}, checkpoint={"keep_best": True}, progress=False)
    [best] = result.directory.rglob("best-*.ckpt")
    marker = tmp_path / "executed"

    class Code:
        def __reduce__(self):
            return (marker.touch, ())

    torch.save({"params": Code()}, best)
    best.rename(best.with_name(f"{best.name[:12]}{hashlib.sha256(best.read_bytes()).hexdigest()[:16]}.ckpt"))
    err = refused(capsys, str(result.directory), "--which", "best", "--to", str(tmp_path / "model.pt"))
    assert "cannot be read as tensors and plain values" in err
    assert not marker.exists()
