"""The doctor's findings on this machine and on machines made worse in one respect."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import checks
from fl_platform.cli.checks import REQUIRED, Finding
from fl_platform.cli.doctor import line, main
from fl_platform.data import datasets
from fl_platform.errors import UserError

KEY = "0123456789abcdef" * 2 + "01234567"  # the form of a W&B key


def report(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and findings by part."""
    code = main(["--json", *args])
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is (code == 0)
    return code, {finding["part"]: finding for finding in printed["findings"]}


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def test_this_machine_is_sound(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import torch

    code, findings = report(capsys, f"output.dir={tmp_path}/runs")
    assert code == 0
    assert torch.__version__ in findings["torch"]["detail"]
    assert {finding["status"] for finding in findings.values()} <= {"ok", "missing"}
    assert all(finding["advice"] for finding in findings.values() if finding["status"] != "ok")
    assert {f"data {name}" for name in datasets.names()} <= findings.keys()
    assert list(tmp_path.iterdir()) == []


def test_plain_lines_hold_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    _, findings = report(capsys)
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [finding["status"] for finding in findings.values()]
    assert all(part in line for part, line in zip(findings, lines, strict=True))


def test_findings_are_printed_one_by_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(keys: list[str]) -> Iterator[Finding]:
        yield Finding("first", "ok", "here")
        assert capsys.readouterr().out == f"ok      {'first':20}  here\n"
        yield Finding("second", "broken", "gone", "get it")

    monkeypatch.setattr(checks, "examine", examine)
    assert main([]) == 1
    assert capsys.readouterr().out == f"broken  {'second':20}  gone; get it\n"
    assert line(Finding("third", "missing", ""), is_coloured=True).startswith("\033[33mmissing \033[0mthird")


def test_data_is_found_where_it_lies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FL_DATA_ROOT", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME"):  # an empty user cache
        monkeypatch.setenv(name, str(tmp_path / "home"))
    folder = tmp_path / datasets.get("mnist").folders[0]
    folder.mkdir(parents=True)
    code, findings = report(capsys, f"data.root={tmp_path}")
    assert code == 0
    assert findings["data mnist"] == {"part": "data mnist", "status": "ok", "detail": str(folder), "advice": ""}
    assert findings["data cifar10"]["status"] == "missing"
    assert "data get cifar10" in findings["data cifar10"]["advice"]
    assert findings["data digits"]["status"] == "ok"


def test_online_without_a_login_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    code, findings = report(capsys, "tracking.mode=online")
    assert code == 1
    assert findings["tracking"]["status"] == "broken"
    assert "wandb login" in findings["tracking"]["advice"]


@pytest.mark.parametrize("source", ["environment", "netrc"])
def test_a_login_is_seen_and_never_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    if source == "environment":
        monkeypatch.setenv("WANDB_API_KEY", KEY)
    else:
        (tmp_path / "netrc").write_text(f"default login user password {KEY}\n")
        (tmp_path / "netrc").chmod(0o600)
    assert main(["tracking.mode=online"]) == 0
    printed = capsys.readouterr()
    assert "tracking.mode=online; logged in" in printed.out
    assert KEY not in printed.out + printed.err


def test_a_key_of_the_wrong_form_is_no_login(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "short")
    code, findings = report(capsys, "tracking.mode=online")
    assert code == 1
    assert findings["tracking"]["status"] == "broken"


def test_an_output_directory_that_cannot_be_made_is_broken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, findings = report(capsys, f"output.dir={tmp_path}/file/runs")
    assert code == 1
    assert findings["output"]["status"] == "broken"
    assert "Not a directory" in findings["output"]["detail"]


def doctor_without(packages: dict[str, str], folder: Path) -> tuple[int, dict[str, str]]:
    """Exit code and lines by part, in an interpreter where some packages are replaced by the given code."""
    for name, source in packages.items():
        (folder / f"{name}.py").write_text(source)
    start = f"import sys; sys.path.insert(0, {str(folder)!r})"
    code = f"{start}; from fl_platform.cli import main; sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, {line.split()[1]: line for line in done.stdout.splitlines()}


def test_a_machine_without_torch(tmp_path: Path) -> None:
    damaged = {"torch": "raise OSError('libgomp.so.1:\\n cannot open')\n", "clarabel": "import no_such_module\n"}
    code, lines = doctor_without(damaged, tmp_path)
    assert code == 1
    assert lines["torch"].startswith("broken")
    assert "OSError: libgomp.so.1: cannot open" in lines["torch"]
    assert lines["lightning"].startswith("broken")
    assert lines["numpy"].startswith("ok")
    assert lines["clarabel"].startswith("missing")
    assert lines["output"].startswith("ok")


def test_a_machine_where_nothing_is_installed(tmp_path: Path) -> None:
    nothing = dict.fromkeys((*REQUIRED, "torch", "torchvision"), "raise ModuleNotFoundError\n")
    code, lines = doctor_without(nothing, tmp_path)
    assert code == 1
    assert all(lines[name].startswith("broken") and "make setup" in lines[name] for name in nothing)


def test_a_word_that_is_no_key_is_refused() -> None:
    with pytest.raises(UserError, match=r"output\.dri"):
        main(["output.dri=x"])
