"""A damaged `rounds.jsonl` of one trial is named, and neither ends the launcher nor changes what the others do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.sweeps import launcher
from fl_platform.sweeps.ledger import Ledger
from fl_platform.sweeps.states import TrialState

GOOD = '{"round": 1, "test/accuracy": 0.5, "test/top_accuracy": 0.5}'
DAMAGES = {
    "one byte": GOOD.replace('"round"', '"rou\\377d"'),
    "invalid text": "\\377\\376\\200",
    "a zero byte": GOOD.replace("0.5", "0.\\0005"),
    "cut": GOOD[:20],
    "a round twice": f"{GOOD}\\n{GOOD}",
    "text for a round": GOOD.replace("1,", '"one",'),
    "text for a number": GOOD.replace("0.5", '"high"'),
    "a list for a number": GOOD.replace("0.5", "[1, {}]"),
    "a mapping for a number": GOOD.replace("0.5", '{"a": 1}'),
    "a huge number": GOOD.replace("0.5", "1" * 400),
    "a huge round": GOOD.replace("1,", "1" * 400 + ","),
    "not a number": GOOD.replace("0.5", "NaN"),
    "a truth value": GOOD.replace("0.5", "true"),
    "deep": "[" * 3000,
    "no mapping": "[1, 2]",
}
COUNT = len(DAMAGES)
METHODS = {
    "grid": "parameters:\n  seed: {values: [%s]}",
    "bayes": "run_cap: %d\nparameters:\n  local_lr: {min: 0.1, max: 0.2}",
    "random": "run_cap: %d\nearly_terminate: {type: hyperband, min_iter: 1}\nparameters:\n"
    "  local_lr: {min: 0.1, max: 0.2}",
}
STUB = """#!/bin/sh
place="runs/$WANDB_RUN_ID"
mkdir -p "$place/attempts/0001"
number=$(ls ran | wc -l)
touch "ran/$WANDB_RUN_ID"
cat "lines/$number" > "$place/attempts/0001/rounds.jsonl"
[ "$number" -gt 0 ] || sleep 0.3
printf '{"run": "x", "status": "finished", "rounds": 2, "test/top_accuracy": 0.5}' > "$place/result.json"
"""


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], tuple[int, Path]]:
    """``launch(method, stub)``: a sweep whose trials are a shell script, one for each damage; code and directory."""

    def launched(method: str, stub: str) -> tuple[int, Path]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(launcher, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(launcher, "LOOK_SECONDS", 0.1)
        for name in ("ran", "lines"):
            (tmp_path / name).mkdir()
        for number, damage in enumerate(DAMAGES.values()):
            damaged = damage.encode().decode("unicode_escape").encode("latin-1")
            (tmp_path / "lines" / str(number)).write_bytes(f"{GOOD}\n".encode() + damaged + b"\n")
        (tmp_path / "stub").write_text(stub)
        (tmp_path / "stub").chmod(0o755)
        given = METHODS[method] % (",".join(map(str, range(COUNT))) if method == "grid" else COUNT)
        (tmp_path / "sweep.yaml").write_text(
            f"name: s\nmethod: {method}\nmetric: {{name: test/accuracy, goal: maximize}}\n{given}\n"
            "command: [./stub, -m, fl_platform, run, --skip-finished, output.dir=runs, '${args_no_hyphens}']\n"
        )
        code = main(["sweep", "run", "sweep.yaml", "--jobs", "1"])
        (directory,) = (tmp_path / "runs" / "sweeps").iterdir()
        return code, directory

    return launched


@pytest.mark.parametrize("method", METHODS)
def test_the_launcher_goes_on_with_every_trial(
    method: str, launch: Callable[[str, str], tuple[int, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, directory = launch(method, STUB)
    printed = "".join(capsys.readouterr())
    assert code == 0
    assert f"{COUNT}/{COUNT} done ({COUNT} finished)" in printed
    assert printed.count("rounds.jsonl: 1 rows are damaged and left out") >= 6
    assert "best test/accuracy=0.5000" in printed
    with Ledger(directory, read_only=True) as ledger:
        assert {entry.state for entry in ledger.entries()} == {TrialState.FINISHED}
    assert main(["sweep", "run", "sweep.yaml"]) == 0
    assert main(["sweep", "status", str(directory)]) == 0


def test_trials_that_end_without_a_result_fail_alone(launch: Callable[[str, str], tuple[int, Path]]) -> None:
    """Without results, what the rows say is all there is: it must not end the launcher, whatever it is."""
    code, directory = launch("grid", STUB.rpartition("printf")[0] + "exit 1\n")
    assert code == 1
    with Ledger(directory, read_only=True) as ledger:
        assert [entry.state for entry in ledger.entries()] == [TrialState.FAILED] * COUNT
    assert main(["sweep", "status", str(directory)]) == 0
