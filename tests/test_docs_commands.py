"""Every command that a document prints is carried out, in the order of its page, or says in a comment what it needs.

A command is called in this process. To take a moment instead of minutes it gets arguments behind its own: one round on
the embedded digits, one trial of a sweep. A comment such as ``# needs a network`` or ``# takes minutes`` on its line
says that a reader needs more than a prompt; such commands are only known to exist, and so are forms like
``export RUN --to FILE``.
"""

import itertools
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from matplotlib import pyplot

from fl_platform.cli import main, report
from fl_platform.cli.parser import COMMANDS
from fl_platform.config.registry import REGISTRIES
from fl_platform.reporting.report import read_report
from tests.dashboard.made_runs import write_run
from tests.reporting.test_committed_reports import ARCHIVED

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for folder in ("docs", "examples", "sweeps", "benchmarks") for path in sorted((ROOT / folder).glob("*.md"))),
    *sorted(ROOT.glob("reports/*/*.md")),
]
MARK = re.compile(r"#.*\b(needs a (network|GPU|cluster)|takes (a minute|minutes|hours))")
PROGRAM = re.compile(r"(?P<srun>srun )?(?:\.venv/bin/)?(?:fl-platform|python -m fl_platform) (?P<rest>.+)$")
FORM = re.compile(r"(^|[ =])[A-Z][A-Z_]+\b|HOST:PORT|\[[A-Z-]|\.\.\.|entity/project")
QUICK = ["num_rounds=1", "cohort_size=2"]
QUIET = ["tracking.mode=disabled", "trainer.enable_progress_bar=false"]
FETCHED = re.compile(r"data\.name=(mnist|shakespeare)|scenario=|sweeps/|.*_(mnist|cifar10)$")
"""What makes a command need data that is not embedded."""
ELSEWHERE = {
    "sweep check sweeps/*.yaml": "tests/sweeps/test_sweep_yamls.py",
    "sweep restore reports/": "tests/sweeps/test_sweep_restore.py",
    "run trainer.strategy=ddp trainer.devices=2 device=cpu cohort_size=50": "tests/distributed/test_ranks.py",
    "report mnist": "tests/reporting/test_mnist_report.py",
    **{f"report {name}": "tests/reporting/test_committed_reports.py" for name in ARCHIVED},
}
"""Commands that are long or need a process of their own, by their beginning, and the tests that carry them out."""


@dataclass(frozen=True)
class Printed:
    """A command of a page: its text behind the name of the program, and whether a comment says what it needs."""

    text: str
    is_marked: bool

    @property
    def args(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def is_form(self) -> bool:
        """Whether it has places to fill in, such as RUN_ID."""
        return FORM.search(" ".join(self.args)) is not None

    @property
    def is_elsewhere(self) -> bool:
        return any(" ".join(self.args).startswith(beginning) for beginning in ELSEWHERE)


def commands(page: Path) -> list[Printed]:
    """The calls of fl-platform on a page: in blocks, in its order, then those in backticks."""
    found = []
    for line in code_lines(page):
        if match := PROGRAM.match(line.strip()):
            found.append(Printed(match["rest"], bool(match["srun"]) or MARK.search(match["rest"]) is not None))
    return found


def code_lines(page: Path) -> list[str]:
    """The lines of shell blocks and indented blocks, and what stands in backticks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = "\n".join(re.findall(r"^ {4}(.*)$", prose, re.MULTILINE))
    lines = [line for block in [*blocks, indented] for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    sentences = re.sub(r"\s*\n\s*", " ", re.sub(r"^ {4}.*$", "", prose, flags=re.MULTILINE))
    return [*lines, *re.findall(r"(?<!`)`([^`]+)`", sentences)]


def block(page: str, language: str, place: int) -> str:
    """One block of code of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return str(re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[place])


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a reader: some finished runs, and the files that the documents say to save.

    What plugins register is forgotten afterwards.
    """
    for name, text in {
        "skew.yaml": block("docs/sweeps.md", "yaml", 0),
        "reports/skew/report.yaml": block("docs/reports.md", "yaml", 0),
        "fedclip.py": block("README.md", "python", 1),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    finished_runs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "plugin"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for registry in REGISTRIES:
        for name in [name for name, module in registry._modules.items() if is_plugin(module)]:
            del registry._entries[name], registry._modules[name]
    for name in [name for name in sys.modules if is_plugin(name)]:
        del sys.modules[name]
    pyplot.close("all")


def is_plugin(module: str) -> bool:
    return module.partition(".")[0] in ("fedclip", "fl_example")


def finished_runs(place: Path) -> None:
    """Methods, label skews and seeds in ``runs``; a grid of GradMA's two decays in ``decays``."""
    cases = itertools.product(("fedavg", "fedprox", "scaffold", "gradma"), (0.1, 1.0), range(3))
    for number, (method, omega, seed) in enumerate(cases):
        data = {"name": "digits", "partition": "dirichlet", "dirichlet_omega": omega}
        write_run(place / "runs", f"{number:012x}", method, seed, data=data, local_lr=0.1)
    for number, (first, second) in enumerate(itertools.product((0.5, 0.9), repeat=2)):
        decays = {"momentum_decay": first, "memory_decay": second}
        write_run(place / "decays", f"{number:012x}", "gradma", fields=decays)


def shortened(args: list[str]) -> list[str]:
    """The command with arguments behind its own that make it take a moment, on embedded data."""
    embedded = ["data.name=digits", "model.name=mlp"] if any(FETCHED.match(word) for word in args) else []
    if args[0] == "run":
        steps = [] if any(word.startswith("local_epochs=") for word in args) else ["local_steps=1"]
        plugin = (
            ["plugins=[fedclip]"] if "algorithm.name=fedclip" in args and "plugins=[fl_example]" not in args else []
        )
        return [*args, *QUICK, *steps, *plugin, *embedded, *QUIET]
    if args[:2] in (["sweep", "run"], ["sweep", "status"], ["sweep", "best"]):
        own = [word for word in args if word != "--in-process"]
        if "--jobs" in own:
            del own[(place := own.index("--jobs")) : place + 2]
        cap = ["--in-process", "--cap", "1"] if args[1] == "run" else []
        if "tune_mnist_budget" in args[2]:  # `sweep best --reuse` takes over what was found in this scenario
            own.append("scenario=mnist_w0.01_s10")
        return [*own, *cap, *QUICK, "local_steps=1", *embedded, *QUIET]
    if args[:2] == ["data", "partition"]:
        return [*args, *embedded]
    if args[:2] == ["report", "demo"]:  # its runs are those of `demo`
        return [*args, "--source", "runs"]
    if args[:2] == ["figure", "heatmap"]:
        return ["decays" if word == "runs" else word for word in args]
    return args


def carry_out(args: list[str]) -> object:
    """Call a command, shortened; returns its exit code."""
    if args[0] == "dashboard":
        return serve_for_a_moment(args)
    try:
        return main(shortened(args))
    except SystemExit as ended:  # --help and --version
        return ended.code or 0


def serve_for_a_moment(args: list[str]) -> int:
    """Call ``dashboard``; as soon as its page answers, interrupt it as Ctrl-C does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers: list[int] = []

    def visit() -> None:
        deadline = time.monotonic() + 60
        while not answers and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                    answers.append(answer.status)
            except OSError:
                time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    visitor = threading.Thread(target=visit)
    visitor.start()
    code = main([*args, "--port", str(port), "--no-browser"])
    visitor.join()
    assert answers == [200]
    return code


WITH_COMMANDS = {str(page.relative_to(ROOT)): page for page in PAGES if commands(page)}


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_commands_of_a_page_work(name: str, reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[list[str]] = []
    for printed in commands(WITH_COMMANDS[name]):
        args = printed.args
        assert args[0] in COMMANDS or args == ["--version"], printed.text
        if printed.is_elsewhere and args[0] == "report":
            options = report._parser().parse_args(args[1:])
            read_report(report._known_reports(), options.name)
        elif not (printed.is_marked or printed.is_form or printed.is_elsewhere or args in done):
            done.append(args)
            code = carry_out(args)
            assert code == 0, f"{printed.text}\n{capsys.readouterr().err}"


def test_commands_are_carried_out_and_not_only_marked() -> None:
    found = [printed for page in PAGES for printed in commands(page)]
    idle = [printed for printed in found if printed.is_marked or printed.is_form or printed.is_elsewhere]
    assert len(found) - len(idle) >= 75
    assert sum(printed.is_marked for printed in found) <= 12
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())
    assert all(printed.is_marked for printed in found if printed.args[:2] == ["data", "get"])


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    printed = {match[1] for page in PAGES for line in code_lines(page) if (match := re.match(r"make ([a-z]+)", line))}
    assert {"demo", "test", "docs"} <= printed <= targets


def test_modules_that_are_called_exist() -> None:
    lines = [line for page in PAGES for line in code_lines(page)]
    called = {match[1] for line in lines if (match := re.match(r"python -m ((?:benchmarks|tools)[\w.]*)", line))}
    assert len(called) >= 4
    assert [name for name in called if find_spec(name) is None] == []
