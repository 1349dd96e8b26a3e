"""``run`` as a user calls it: args in; a last line, files and an exit code out."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.cli import main
from fl_platform.config.registry import ALGORITHMS
from fl_platform.runs.checkpoint_files import digest, sorted_checkpoints

SMALL = ["num_workers=10", "cohort_size=2", "num_rounds=3", "local_steps=1", "tracking.mode=disabled"]
LAST_LINE = re.compile(
    r"done run=(?P<run>[0-9a-f]{12}) rounds=(?P<rounds>\d+) top_accuracy=(?P<top>0\.\d{6}) at_round=(?P<at>\d+) "
    r"final_accuracy=(?P<final>0\.\d{6}) fingerprint=(?P<fingerprint>[0-9a-f]{64})"
)


def run(capsys, *args):
    """(exit code, last line of stdout, stderr) of a run in this process."""
    code = main(["run", *args])
    captured = capsys.readouterr()
    return code, (captured.out.splitlines() or [""])[-1], captured.err


def in_process(capsys, output, *args):
    code, line, _ = run(capsys, *SMALL, *args, f"output.dir={output}")
    assert code == 0
    return LAST_LINE.fullmatch(line)


def fingerprint(capsys, *args):
    code, line, _ = run(capsys, *args)
    assert code == 0
    return LAST_LINE.fullmatch(line)["fingerprint"]


# --- a run and its files ---


def test_the_last_line_the_summary_and_the_result_agree(capsys, tmp_path):
    line = in_process(capsys, tmp_path, "--json", str(tmp_path / "deep" / "summary.json"))
    summary = json.loads((tmp_path / "deep" / "summary.json").read_text())
    stored = json.loads((tmp_path / line["run"] / "result.json").read_text())
    assert stored == {**summary, "attempt": "0001", "checksum": stored["checksum"]}
    assert (summary["run"], summary["fingerprint"], summary["status"]) == (line["run"], line["fingerprint"], "finished")
    assert (summary["rounds"], summary["test/top_accuracy_round"]) == (3, int(line["at"]))
    assert f"{summary['test/top_accuracy']:.6f}" == line["top"]
    rows = [json.loads(row) for row in next(tmp_path.glob("*/attempts/0001/rounds.jsonl")).read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert rows[-1]["test/accuracy"] == summary["test/final_accuracy"]


def test_the_same_command_again_is_a_fresh_attempt_with_the_same_fingerprint(capsys, tmp_path):
    first, second = in_process(capsys, tmp_path), in_process(capsys, tmp_path)
    assert first[0] == second[0]
    assert [path.name for path in tmp_path.glob("*/attempts/*")] == ["0002"]


def test_keys_may_come_as_the_agent_writes_them_and_from_files(capsys, tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1\nlocal_lr: 1e-2\n")
    plain = in_process(capsys, tmp_path, "seed=2", "local_lr=0.01")
    agent = in_process(capsys, tmp_path, "--seed=2", "--local_lr=0.01")
    file = in_process(capsys, tmp_path, "--config", str(tmp_path / "config.yaml"), "seed=2")
    assert plain[0] == agent[0] == file[0]


def test_skip_finished_returns_the_stored_result_without_running(capsys, tmp_path):
    line = in_process(capsys, tmp_path)
    stored = tmp_path / line["run"] / "result.json"
    values = json.loads(stored.read_text()) | {"fingerprint": "0" * 64}
    del values["checksum"]  # as in results of earlier versions
    stored.write_text(json.dumps(values))
    code, again, err = run(
        capsys, *SMALL, f"output.dir={tmp_path}", "--skip-finished", "--json", str(tmp_path / "s.json")
    )
    assert code == 0
    assert LAST_LINE.fullmatch(again)["fingerprint"] == "0" * 64
    assert "is finished already" in err
    assert json.loads((tmp_path / "s.json").read_text())["fingerprint"] == "0" * 64
    assert in_process(capsys, tmp_path)["fingerprint"] == line["fingerprint"]


def test_a_finished_run_can_drop_its_checkpoints(capsys, tmp_path):
    kept, dropped = (
        in_process(capsys, tmp_path / "a"),
        in_process(capsys, tmp_path / "b", "checkpoint.keep_finished=false"),
    )
    assert kept[0] == dropped[0]
    assert list((tmp_path / "a").glob("*/attempts/*/checkpoints/*.ckpt"))
    assert not list((tmp_path / "b").glob("*/attempts/*/checkpoints"))
    code, again, err = run(capsys, *SMALL, f"output.dir={tmp_path / 'b'}", "--skip-finished", "--continue")
    assert code == 0
    assert LAST_LINE.fullmatch(again)["fingerprint"] == dropped["fingerprint"]
    assert "is finished already" in err


def test_where_it_runs_does_not_change_the_bits(capsys, tmp_path):
    first = in_process(capsys, tmp_path / "a")
    second = in_process(capsys, tmp_path / "b", "device=cpu", "checkpoint.every=1", "trainer.deterministic=true")
    assert first[0] == second[0]


def test_a_run_that_diverges_ends_with_code_3_and_valid_json(capsys, tmp_path):
    code, line, _ = run(
        capsys, *SMALL, "local_lr=1e30", "model.norm=none", f"output.dir={tmp_path}", "--json", str(tmp_path / "s.json")
    )
    assert code == 3
    assert re.fullmatch(
        r"diverged run=\w{12} rounds=1 top_accuracy=nan at_round=0 final_accuracy=nan fingerprint=\w{64}", line
    )
    for path in (
        tmp_path / "s.json",
        next(tmp_path.glob("*/result.json")),
        next(tmp_path.glob("*/attempts/*/rounds.jsonl")),
    ):
        values = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert values["round"] == 1
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["status"], summary["diverged_round"], summary["test/top_accuracy"]) == ("diverged", 1, None)


# --- bad input ---


BAD = {
    "unknown key": (["sed=1"], "unknown key 'sed'; did you mean 'seed'?"),
    "unknown key in the agent's form": (["--sed=1"], "unknown key 'sed'; did you mean 'seed'?"),
    "not a key": (["=3"], "'=3' is not of the form key=value"),
    "wrong type": (["seed=one"], "seed=one has the wrong type; expected int"),
    "empty": (["local_lr="], "local_lr=null has the wrong type; expected float"),
    "not finite": (["local_lr=nan"], "local_lr=nan is not allowed"),
    "a lookup": (["local_lr=${oc.env:HOME}"], "local_lr=${oc.env:HOME} is not allowed"),
    "S > N": (["cohort_size=11"], "cohort_size=11 exceeds num_workers=10"),
    "m < S": (["algorithm.name=gradma", "algorithm.memory_size=1"], "algorithm.memory_size=1 is not allowed"),
    "m > N": (["algorithm.name=gradma", "algorithm.memory_size=11"], "algorithm.memory_size=11 is not allowed"),
    "too many workers": (["num_workers=100000"], "num_workers=100000 is not possible"),
    "no such data set": (["data.name=minst"], "did you mean 'mnist'?"),
    "missing data": (["data.name=mnist", "data.root=/nowhere"], "fl_platform data get mnist --root /nowhere`"),
    "no such model": (["model.name=lenet"], "did you mean 'lenet5'?"),
    "nodes that nothing starts": (
        ["trainer.num_nodes=99999"],
        "trainer.num_nodes=99999: nothing here starts processes",
    ),
    "too many processes": (["trainer.devices=99999"], "trainer.devices=99999 starts as many processes"),
    "an accelerator without its package": (
        ["trainer.accelerator=tpu"],
        "trainer.accelerator=tpu is refused by Lightning",
    ),
    "accelerators in a list": (["trainer.accelerator=[cpu]"], "trainer.accelerator=['cpu'] is not allowed; it must be"),
    "processes that are copied": (["trainer.strategy=ddp_spawn"], "trainer.strategy=ddp_spawn copies a process"),
    "a time that is none": (["trainer.max_time=3"], "trainer.max_time=3 is refused by Lightning"),
    "a count that is none": (
        ["trainer.log_every_n_steps=x"],
        "trainer.log_every_n_steps=x is not allowed; it must be a",
    ),
    "a GPU without float64": (["trainer.accelerator=mps"], "trainer.accelerator=mps: GPUs of Apple have no float64"),
    "a model that is nowhere": (["model.name=no.such.module"], "model.name=no.such.module cannot be imported"),
    "a model for larger images": (["model.name=vgg11"], "model.name=vgg11 needs images of at least 32x32"),
    "a width that does not apply": (["model.width=3"], "model.width=3 only applies to model.name=char_gru | resnet20"),
    "one sample": (["batch_size=1"], "batch_size=1 with model.norm=batch"),
    "no such device": (["device=tpu"], "device=tpu is not allowed; allowed: auto | cpu | cuda | cuda:K"),
    "no such CUDA device": (["device=cuda:99"], "device=cuda:99: this machine has"),
    "no such device for states": (["state.device=gpu0"], "state.device=gpu0 is not allowed"),
    "no such device for memory": (
        ["algorithm.name=gradma", "algorithm.memory_size=5", "algorithm.memory_device=99"],
        "algorithm.memory_device=99 is not allowed",
    ),
    "no such policy": (
        ["algorithm.name=gradma", "algorithm.memory_size=5", "algorithm.memory_policy=lru"],
        "algorithm.memory_policy=lru is not known; allowed: fifo",
    ),
    "an earlier key": (["qp.scope=tensor"], "unknown key 'qp.scope'; it is now algorithm.qp.scope"),
    "an unknown trainer key": (
        ["trainer.devises=1"],
        "trainer.devises=1: lightning.Trainer has no such argument; did you mean 'devices'?",
    ),
    "a trainer key set elsewhere": (
        ["trainer.max_epochs=3"],
        "trainer.max_epochs=3 is set by the platform; use num_rounds",
    ),
    "a trainer key that skips evaluations": (
        ["trainer.limit_val_batches=0"],
        "trainer.limit_val_batches=0 does not apply to federated rounds",
    ),
    "a trainer value refused by Lightning": (
        ["trainer.accelerator=abacus"],
        "trainer.accelerator=abacus is refused by Lightning",
    ),
    "a directory that cannot be": (["output.dir=/dev/null/runs"], "output.dir=/dev/null/runs cannot be written"),
    "a summary that cannot be": (
        ["--json", "/dev/null/summary.json"],
        "--json /dev/null/summary.json cannot be written",
    ),
    "a summary that is a directory": (["--json", "/"], "--json / is a directory"),
    "no such run": (["--resume", "0123456789ab"], "--resume 0123456789ab: no checkpoint below"),
    "no such checkpoint": (["--resume", "nowhere.ckpt"], "--resume nowhere.ckpt: no such checkpoint"),
    "an empty run": (["--resume", ""], "--resume : no checkpoint below"),
    "online without an account": (["tracking.mode=online"], "tracking.mode=online needs a W&B account"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_sentence_and_code_2_before_any_work(what, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    args, message = BAD[what]
    code, line, err = run(capsys, *([] if "--resume" in args else SMALL), f"output.dir={tmp_path}", *args)
    assert code == 2
    assert line == ""
    assert re.fullmatch(r"fl_platform: [^\n]+\n", err)
    assert message in err
    assert not list(tmp_path.glob("*/attempts/*")), "no attempt was started"


def test_an_option_without_its_value_is_argparse_code_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--json"])
    assert ended.value.code == 2
    assert "expected one argument" in capsys.readouterr().err


# --- resuming ---


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run of six rounds stopped in this process after three: its output directory, and the undisturbed line."""
    output = tmp_path_factory.mktemp("interrupted")
    args = [*SMALL, "num_rounds=6", "algorithm.name=scaffold", "checkpoint.every=3"]
    assert main(["run", *args, f"output.dir={output}/whole"]) == 0
    [whole] = (output / "whole").glob("*/result.json")
    assert main(["run", *args, f"output.dir={output}/part"]) == 0
    [result] = (output / "part").glob("*/result.json")
    result.unlink()  # as if it had been killed between the third round and the sixth
    [checkpoints] = (output / "part").glob("*/attempts/*/checkpoints")
    [(last, newest), (third, _)] = sorted_checkpoints(checkpoints)
    assert (last, third) == (6, 3)
    newest.unlink()
    return output / "part", json.loads(whole.read_text())["fingerprint"]


def copy_of(source: Path, target: Path) -> Path:
    """The run directory of a copy; returns the only run in it."""
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    [found] = (path.parent for path in target.glob("*/config.yaml"))
    return found


@pytest.mark.parametrize("way", ["run id", "directory", "checkpoint", "continue"])
def test_every_way_to_resume_gives_equal_bits(way, interrupted, capsys, tmp_path):
    source, expected = interrupted
    run_path = copy_of(source, tmp_path)
    [checkpoint] = run_path.rglob("*.ckpt")
    args = {
        "run id": ["--resume", run_path.name, f"output.dir={tmp_path}"],
        "directory": ["--resume", str(run_path)],
        "checkpoint": ["--resume", str(checkpoint), "engine=loop", "--threads=1"],
        "continue": [*SMALL, "num_rounds=6", "algorithm.name=scaffold", f"output.dir={tmp_path}", "--continue"],
    }[way]
    assert fingerprint(capsys, *args) == expected
    [rows] = run_path.rglob("rounds.jsonl")
    assert [json.loads(row)["round"] for row in rows.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]
    assert json.loads((run_path / "result.json").read_text())["fingerprint"] == expected


def test_a_fresh_start_beside_an_unfinished_attempt_says_how_to_continue(interrupted, capsys, tmp_path):
    run_path = copy_of(interrupted[0], tmp_path)
    code, line, err = run(capsys, *SMALL, "num_rounds=6", "algorithm.name=scaffold", f"output.dir={tmp_path}")
    assert code == 0
    assert LAST_LINE.fullmatch(line)["fingerprint"] == interrupted[1]
    assert f"to continue it instead: python -m fl_platform run --resume {run_path.name} output.dir={tmp_path}\n" in err


def test_a_damaged_newest_checkpoint_falls_back(interrupted, capsys, tmp_path):
    run_path = copy_of(interrupted[0], tmp_path)
    [checkpoint] = run_path.rglob("*.ckpt")
    newer = checkpoint.with_name("round-000005-0123456789abcdef.ckpt")
    newer.write_bytes(checkpoint.read_bytes()[:1000])
    code, line, err = run(capsys, "--resume", str(run_path))
    assert code == 0
    assert LAST_LINE.fullmatch(line)["fingerprint"] == interrupted[1]
    assert f"checkpoint {newer} is damaged; falling back to the one before" in err


@pytest.mark.parametrize(
    "word",
    ["seed=1", "algorithm.name=fedavg", "--local_lr=1", "preset=released", "scenario=mnist_w1_s10"],
)
def test_another_experiment_is_refused_on_resume(word, interrupted, capsys, tmp_path):
    run_path = copy_of(interrupted[0], tmp_path)
    code, _, err = run(capsys, "--resume", str(run_path), word)
    assert code == 2
    assert f"--resume with {word.lstrip('-')}: this would be another experiment" in err


def test_a_config_file_is_refused_on_resume(interrupted, capsys, tmp_path):
    run_path = copy_of(interrupted[0], tmp_path)
    (tmp_path / "c.yaml").write_text("seed: 5\n")
    code, _, err = run(capsys, "--resume", str(run_path), "--config", str(tmp_path / "c.yaml"))
    assert code == 2
    assert "the checkpoint holds its configuration" in err


def test_a_run_of_an_earlier_version_goes_on_in_its_own_directory(capsys, tmp_path):
    """Its checkpoint holds the earlier keys, its directory the id those keys gave."""
    args = [*SMALL, "num_rounds=4", "checkpoint.every=2", "algorithm.name=gradma", "algorithm.memory_size=5"]
    args += ["algorithm.qp.scope=tensor", "trainer.enable_progress_bar=false"]
    expected = fingerprint(capsys, *args, f"output.dir={tmp_path}")
    [result] = tmp_path.glob("*/result.json")
    result.unlink()
    result.parent.rename(tmp_path / "0123456789ab")
    [(_, newest), (round, checkpoint)] = sorted_checkpoints(
        tmp_path / "0123456789ab" / "attempts" / "0001" / "checkpoints"
    )
    newest.unlink()
    saved = torch.load(checkpoint, weights_only=True)
    config = json.loads(saved["federated"]["config"])
    fields = config["algorithm"]
    config["qp"] = fields.pop("qp")
    del config["qp"]["log_errors"]  # came later
    config["memory"] = {name: fields.pop(f"memory_{name}") for name in ("policy", "device", "shard")}
    saved["federated"]["config"] = json.dumps(config)
    torch.save(saved, checkpoint)
    checkpoint.rename(checkpoint.with_name(f"round-{round:06d}-{digest(checkpoint)}.ckpt"))

    code, line, _ = run(capsys, "--resume", "0123456789ab", f"output.dir={tmp_path}", "algorithm.memory_device=cpu")
    assert code == 0
    assert (LAST_LINE.fullmatch(line)["run"], LAST_LINE.fullmatch(line)["fingerprint"]) == ("0123456789ab", expected)
    assert [path.name for path in tmp_path.iterdir() if (path / "attempts").exists()] == ["0123456789ab"]
    assert json.loads((tmp_path / "0123456789ab" / "result.json").read_text())["run"] == "0123456789ab"


@pytest.mark.parametrize("how", ["renamed", "damaged"])
def test_an_explicit_checkpoint_that_was_renamed_or_damaged_is_refused(how, interrupted, capsys, tmp_path):
    run_path = copy_of(interrupted[0], tmp_path)
    [checkpoint] = run_path.rglob("*.ckpt")
    if how == "renamed":
        checkpoint = checkpoint.rename(checkpoint.with_name("best.ckpt"))
    else:
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    code, _, err = run(capsys, "--resume", str(checkpoint))
    assert code == 2
    assert f"--resume {checkpoint}: the file is damaged or was renamed" in err


def test_the_second_ctrl_c_ends_the_command_with_code_130(capsys, tmp_path):
    class Impatient(base.Algorithm, name="impatient"):
        def begin_round(self, workers, round):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    try:
        code, line, err = run(capsys, *SMALL, "algorithm.name=impatient", f"output.dir={tmp_path}")
    finally:
        ALGORITHMS._entries.pop("impatient")
        signal.signal(signal.SIGINT, handler)  # Lightning leaves the signal ignored
    assert (code, line) == (130, "")
    assert err.endswith("fl_platform: interrupted\n")


# --- as a process of its own ---


def start(*args):
    command = [sys.executable, "-m", "fl_platform", "run", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_process_prints_its_result_and_nothing_that_alarms(tmp_path):
    args = [word for word in SMALL if not word.startswith("tracking")]
    process = start(*args, f"output.dir={tmp_path}")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert LAST_LINE.fullmatch(out.strip())
    assert re.fullmatch(r"W&B directory: \S+/wandb/offline-run-\S+\n", err)


def test_an_interrupted_process_saves_says_how_to_resume_and_loses_nothing(capsys, tmp_path):
    args = [*SMALL, "num_rounds=100", "algorithm.name=fedavgm", f"output.dir={tmp_path}"]
    process = start(*args)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.stat().st_size > 0 for path in tmp_path.glob("*/attempts/*/rounds.jsonl")):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out.startswith("interrupted run=")
    rounds = int(re.search(r"rounds=(\d+)", out)[1])
    assert 0 < rounds < 100
    [(saved, _)] = sorted_checkpoints(next(tmp_path.glob("*/attempts/*/checkpoints")))[:1]
    assert saved == rounds
    assert not list(tmp_path.glob("*/result.json"))
    [command] = re.findall(r"to resume: python -m fl_platform (run .+)", err)
    assert main(shlex.split(command)) == 0
    resumed = LAST_LINE.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert resumed["rounds"] == "100"
    [rows] = tmp_path.glob("*/attempts/*/rounds.jsonl")
    assert [json.loads(row)["round"] for row in rows.read_text().splitlines()] == list(range(1, 101))
    undisturbed = fingerprint(capsys, *args[:-1], f"output.dir={tmp_path}/undisturbed")
    assert resumed["fingerprint"] == undisturbed


def test_half_a_character_is_refused_before_anything_begins(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--json", "\ud800", "num_rounds=1"]) == 2
    assert "the argument \\ud800 holds half a character" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
