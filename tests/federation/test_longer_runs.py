"""A finished run made longer is the longer run: equal bits, with an id, directory and result of its own."""

import pytest

import fl_platform as fl
from fl_platform.cli import main
from fl_platform.runs.checkpoint_files import round_of, sorted_checkpoints

KEYS = {
    "num_workers": 10,
    "cohort_size": 3,
    "local_steps": 1,
    "algorithm.name": "gradma",
    "evaluation.every": 2,  # round 4 is evaluated only where it is the last
    "evaluation.targets": [0.1, 0.15],
    "trainer.enable_progress_bar": False,
}
OFF = {**KEYS, "tracking.mode": "disabled"}


def without_clock(values):
    return {name: value for name, value in values.items() if not name.startswith("time/") and "/seconds" not in name}


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    return fl.run(OFF, num_rounds=7, output={"dir": tmp_path_factory.mktemp("direct")})


def assert_equal(longer, direct):
    assert longer.run_id == direct.run_id
    assert without_clock(longer.summary) == without_clock(direct.summary)
    assert [without_clock(row) for row in longer.history] == [without_clock(row) for row in direct.history]


def test_it_comes_to_the_same_bits_and_leaves_the_shorter_run_alone(direct, tmp_path):
    shorter = fl.run(KEYS, num_rounds=4, output={"dir": tmp_path}, checkpoint={"keep_best": True})
    assert shorter.rounds["test/accuracy"].notna().tolist() == [True, False, True, True]
    before = {path: path.read_bytes() for path in shorter.directory.rglob("*") if path.is_file()}
    longer = fl.run(resume=shorter, num_rounds=7)
    assert_equal(longer, direct)
    assert longer.directory == tmp_path / direct.run_id
    assert {path: path.read_bytes() for path in before} == before
    logged = fl.load_runs(longer.wandb_directory).rounds
    assert logged["round"].tolist() == [1, 2, 3, 4, 5, 6, 7], "also in W&B, where it is a run of its own"
    assert logged["test/accuracy"].notna().tolist() == [True, False, True, False, True, False, True]
    assert sorted(fl.load_runs(tmp_path).summary["num_rounds"]) == [4, 7]


def test_a_run_that_was_made_longer_can_be_interrupted_and_go_on(direct, tmp_path):
    shorter = fl.run(OFF, num_rounds=4, output={"dir": tmp_path}, checkpoint={"every": 2})
    longer = fl.run(resume=shorter, num_rounds=7)
    (longer.directory / "result.json").unlink()
    [(_, newest), (round, _)] = sorted_checkpoints(longer.attempt / "checkpoints")
    newest.unlink()
    assert round == 6
    assert_equal(fl.run(OFF, num_rounds=7, output={"dir": tmp_path}, reuse=True), direct)


def test_the_best_model_so_far_is_taken_along(tmp_path):
    keys = {**OFF, "output.dir": tmp_path, "checkpoint.keep_best": True, "server_lr": 0.001, "evaluation.every": 1}
    shorter = fl.run(keys, num_rounds=2)
    longer = fl.run(resume=shorter, num_rounds=3)
    top = longer.summary["test/top_accuracy_round"]
    [kept] = (longer.attempt / "checkpoints").glob("best-*.ckpt")
    assert round_of(kept) == top
    assert longer.model("best") is not None


def test_shorter_and_diverged_are_refused(tmp_path, capsys):
    done = fl.run(OFF, num_rounds=3, output={"dir": tmp_path})
    with pytest.raises(fl.UserError, match=r"num_rounds=2: the run is at round 3; a run can be made longer"):
        fl.run(resume=done, num_rounds=2)
    assert fl.run(resume=done, num_rounds=3).summary == done.summary
    diverged = fl.run(OFF, num_rounds=3, local_lr=1e30, model={"norm": "none"}, output={"dir": tmp_path})
    assert diverged.status == "diverged"
    assert fl.run(resume=diverged).summary == diverged.summary, "it has ended: nothing is trained"
    assert main(["run", "--resume", str(diverged.directory), "num_rounds=9"]) == 2
    assert "num_rounds=9: the run diverged in round" in capsys.readouterr().err
