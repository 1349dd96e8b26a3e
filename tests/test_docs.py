"""The documents: every command in them is one that works, links lead somewhere, pictures are there, the site is built.

Commands of a shell block are parsed by the real parsers, their keys composed into a configuration, their sweeps checked
and their reports read; nothing is trained. A line with ``# needs a network`` is only parsed.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fl_platform.cli import report, sweep
from fl_platform.cli.parser import COMMANDS, Parser
from fl_platform.config.arguments import parse_run
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.paper.packaged import sweep_file
from fl_platform.reporting.report import read_report
from fl_platform.sweeps.check import check_sweep
from tools import site

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS_NETWORK = "# needs a network"
PAGE_IDS = [str(path.relative_to(ROOT)) for path in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[tuple[list[str], bool]]:
    """The arguments behind ``fl-platform`` of every command of a page, and whether it needs a network."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^ {4}(\S.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    found = []
    for line in lines:
        if match := re.match(r"(?:srun )?(?:fl-platform|python -m fl_platform) (.+)", line):
            found.append((shlex.split(match[1], comments=True), NEEDS_NETWORK in line))
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the documents tell a reader to save."""
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    scratch = re.search(r"^```yaml\n(name: skew\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert scratch is not None
    (tmp_path / "skew.yaml").write_text(scratch[1], encoding="utf-8")
    [definition, *_] = blocks(ROOT / "docs" / "reports.md", "yaml")
    (tmp_path / "reports" / "skew").mkdir(parents=True)
    (tmp_path / "reports" / "skew" / "report.yaml").write_text(definition, encoding="utf-8")
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(command: list[str]) -> None:
    """Raise unless the command could be carried out."""
    name, *args = command
    assert name in COMMANDS
    if "[" in args or any(word.startswith("[") for word in args):
        return  # a synopsis
    if any(word.startswith("plugins=") for word in args):
        return  # would register its names in this process: the next test has a process of its own
    if name == "run":
        parsed = parse_run(args)
        resolve(compose(parsed.keys, parsed.config))
    elif name == "config":
        resolve(compose(args))
    elif name == "report":
        options = report._parser().parse_args(args)
        if options.name not in (None, "power") and not options.archive:
            read_report(report._known_reports(), options.name)
    elif name == "sweep" and args[0] in ("run", "status"):
        parser = Parser()
        sweep.run_options(parser)
        options = parser.parse_intermixed_args(args[1:])
        assert check_sweep(sweep_file(options.target), options.keys, most_points=3).problems == []
    elif name == "sweep":
        assert args[0] in sweep.ACTIONS


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_commands_of_a_page_work(page: Path, place: Path) -> None:
    for command, needs_network in commands(page):
        if needs_network:
            assert command[0] in COMMANDS
        else:
            check(command)


def test_commands_with_plugins_resolve(tmp_path: Path) -> None:
    found = [
        command[1:] for page in PAGES for command, _ in commands(page) if any("plugins=" in word for word in command)
    ]
    assert len(found) >= 2
    source = (
        "import json, sys; from fl_platform.config.compose import compose; "
        "from fl_platform.config.resolve import resolve; "
        "[resolve(compose(args)) for args in json.loads(sys.argv[1])]"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "examples" / "plugin"), str(ROOT)])}
    command = [sys.executable, "-c", source, json.dumps(found)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_are_found() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 40
    assert (["data", "get", "mnist"], True) in commands(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_a_download_is_marked(page: Path) -> None:
    assert all(marked for command, marked in commands(page) if command[:2] == ["data", "get"])


def anchors(page: Path) -> set[str]:
    """The headings of a page as link targets."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=[*PAGE_IDS, "CONTRIBUTING.md"])
def test_links_and_pictures_of_a_page_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
        address, _, anchor = (target[0] or target[1]).partition("#")
        if address.startswith("https://"):
            continue
        found = page.parent / address if address else page
        assert found.exists(), f"{page.name}: {address}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {address}#{anchor}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_every_page_is_in_the_site() -> None:
    content = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": (\S+\.md)$", content, re.MULTILINE))
    assert {str(path.relative_to(ROOT)) for path in PAGES} <= listed
    assert all((ROOT / name).is_file() for name in listed)
    assert yaml.safe_load(content)["theme"]["font"] is False, "fonts would be fetched from elsewhere"


def test_formulas_become_mathml_and_code_stays() -> None:
    pytest.importorskip("latex2mathml", reason="requirements-dev.txt is not installed completely")
    made = site.with_formulas("a $x_t$ b\n\n```math\nx = 1\n```\n```sh\necho $HOME $PATH\n```\n")
    assert made.count("<math") == 2
    assert "echo $HOME $PATH" in made


def test_the_site_is_built_and_asks_for_nothing_elsewhere(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "latex2mathml"):
        pytest.importorskip(package, reason="requirements-dev.txt is not installed completely")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    source = site.collect(ROOT, tmp_path / "source")
    build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(source), site_dir=str(tmp_path / "site")))
    for name in ("index", "docs/algorithms", "docs/python", "docs/options"):
        text = (tmp_path / "site" / f"{name}.html").read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?https?:", text)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """The lines of the API, then the run of the method, in a directory that has the method as fedclip.py."""
    api, method = blocks(ROOT / "README.md", "python")
    (tmp_path / "fedclip.py").write_text(method, encoding="utf-8")
    own = (
        "fl.run({'plugins': ['fedclip'], 'algorithm.max_norm': 0.5}, algorithm='fedclip', num_rounds=1, progress=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{api}\nprint(type(network).__mro__)\n{own}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "torch.nn.modules.module.Module" in done.stdout
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 2
