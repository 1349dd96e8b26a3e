"""The house rules: which room may import which, the words in use, and that files which name each other agree."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fl_platform.cli.parser import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fl_platform"
SOURCES = sorted(PACKAGE.rglob("*.py"))

WANDB_IMPORTERS = {"tracking", "cli", "runs"}


def name_of(source: Path) -> str:
    """The dotted name of a source file."""
    return ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """``fl_platform.federation.pool`` lives in ``workers``; the package itself in the room with no name."""
    return module.split(".")[1] if "." in module else ""


@functools.cache
def imports(source: Path) -> frozenset[str]:
    """Every module or member a file imports, at the top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def rooms_imported(source: Path) -> set[str]:
    """Other rooms of fl_platform that a file imports."""
    ours = {room_of(module) for module in imports(source) if module.startswith("fl_platform.")}
    return ours - {room_of(name_of(source))}


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_only_tracking_knows_wandb(source: Path) -> None:
    if room_of(name_of(source)) not in WANDB_IMPORTERS:
        assert not [module for module in imports(source) if module.partition(".")[0] == "wandb"]


def test_no_method_is_imported_by_name() -> None:
    """Methods know the contract and the parts they share, and everything else knows only the contract."""
    from fl_platform.algorithms import base

    methods = {base.get(name).__module__ for name in base.names()}
    assert {"fl_platform.algorithms.fedavg", "fl_platform.algorithms.fedprox"} <= methods
    for source in SOURCES:
        named = {".".join(module.split(".")[:3]) for module in imports(source)} & methods
        assert not named or room_of(name_of(source)) == "cli", f"{source} imports {named}"


def test_reporting_needs_no_torch() -> None:
    modules = [name_of(source) for source in SOURCES if room_of(name_of(source)) == "reporting"]
    code = f"import sys, {', '.join(modules)}\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_file_has_a_room() -> None:
    assert not {"utils", "helpers", "common", "misc"} & {path.stem for path in PACKAGE.rglob("*")}


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_words(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert re.findall(r"\b(?:TODO|FIXME|XXX)\b", text) == []
    assert re.findall(r"(?<!http\.)(?:\b|_)clients?(?![a-z])|Clients?(?![a-z])|CLIENT", text) == [], "say worker"


def test_every_command_has_its_module() -> None:
    missing = [name for name in COMMANDS if not PACKAGE.joinpath("cli", f"{name}.py").is_file()]
    assert missing == []


def yaml_files() -> list[Path]:
    folders = [ROOT / name for name in ("sweeps", "reports", "docs", "benchmarks", "fl_platform", "tests")]
    found = [path for folder in folders for path in folder.rglob("*.y*ml")]
    return [ROOT / ".pre-commit-config.yaml", *sorted(found)]


@pytest.mark.parametrize("path", yaml_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_parses(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def code_of(document: Path) -> str:
    """What a Markdown file sets as code: fenced, indented or between backticks."""
    text = document.read_text(encoding="utf-8")
    fenced = re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"^ {4}.+$|`[^`\n]+`", text, re.MULTILINE)])


def test_the_readme_says_how_to_start() -> None:
    code = code_of(ROOT / "README.md")
    for command in ("make setup", "make demo", "make test", "python -m fl_platform run"):
        assert command in code


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def commands_in(code: str) -> set[str]:
    return set(re.findall(r"-m fl_platform ([a-z]+)", code))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documented_commands_exist(name: str) -> None:
    code = code_of(ROOT / name)
    assert set(re.findall(r"\bmake ([a-z]+)", code)) <= set(re.findall(r"^([a-z]+):", makefile(), re.MULTILINE))
    assert commands_in(code) <= set(COMMANDS)


def test_make_calls_commands_that_exist() -> None:
    assert commands_in(makefile()) == {"demo"}
    assert commands_in(makefile()) <= set(COMMANDS)


def test_the_worked_example_runs(tmp_path: Path) -> None:
    """CONTRIBUTING's algorithm and its test, word for word, as a method outside the repository."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    method, test = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "fedclip.py").write_text(method, encoding="utf-8")
    test = test.replace("fl_platform.algorithms.fedclip", "fedclip")
    (tmp_path / "test_fedclip.py").write_text("import fl_platform\n" + test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_fedclip.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def pins(name: str) -> Iterator[tuple[str, str]]:
    """(package, version) for each line of a requirements file, package names normalised."""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "-r ")):
            package, exact, version = line.partition("==")
            assert exact, f"{name}: {line} is not exact"
            yield re.sub(r"[-_.]+", "-", package).lower(), version


def test_direct_packages_are_exact_and_agree_with_the_lock() -> None:
    lock = dict(pins("constraints.txt"))
    direct = dict([*pins("requirements.txt"), *pins("requirements-dev.txt")])
    assert len(direct) > 20
    assert direct.items() <= lock.items()
    assert not [version for version in lock.values() if not re.fullmatch(r"[0-9][0-9a-z.]*", version)]


def test_the_ray_extra_is_the_tested_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["ray"] == [f"ray=={dict(pins('constraints.txt'))['ray']}"]
