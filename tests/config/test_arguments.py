"""One parser of the arguments of ``run``: as given on the command line, and in the command of a trial."""

from pathlib import Path

import pytest

from fl_platform.config.arguments import parse_command, parse_run
from fl_platform.config.resolve import spec_of
from fl_platform.errors import UserError

GIVEN = [
    *("--skip-finished", "seed=1", "--config", "a.yaml", "--local_lr=2", "--continue", "--config=b.yaml"),
    *("--drop-unused", "--json", "s.json", "num_rounds=3"),
]


@pytest.mark.parametrize("parse", [parse_run, parse_command])
def test_keys_files_and_flags_in_any_order(parse):
    found = parse(GIVEN)
    assert found.keys == ["seed=1", "local_lr=2", "num_rounds=3"]
    assert found.config == [Path("a.yaml"), Path("b.yaml")]
    assert (found.skip_finished, found.go_on, found.drop_unused) == (True, True, True)
    assert (found.json, found.resume) == (Path("s.json"), None)


def test_a_spec_is_what_keys_and_files_describe(tmp_path):
    (tmp_path / "a.yaml").write_text("seed: 1\nlocal_lr: 0.5\n")
    args = ["--config", str(tmp_path / "a.yaml"), "--seed=2", "algorithm.mu=1", "--drop-unused"]
    spec = spec_of(parse_run(args))
    assert (spec.config.seed, spec.config.local_lr, spec.config.algorithm) == (2, 0.5, {"name": "fedavg"})
    with pytest.raises(UserError, match="fedavg has no such field"):
        spec_of(parse_run(["algorithm.mu=1"]))


@pytest.mark.parametrize("argument", ["--no-such-flag", "--json", "--help", "--config=--"])
def test_what_ends_the_command_is_an_error_of_a_trial(argument, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_run([argument])
    assert ended.value.code == (0 if argument == "--help" else 2)
    capsys.readouterr()
    with pytest.raises(UserError):
        parse_command([argument])
    assert capsys.readouterr() == ("", "")
