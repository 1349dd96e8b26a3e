"""Rules of the project: which package may import which, names in use, and that files which name each other agree."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fl_platform.cli.parser import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fl_platform"
SOURCES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 350  # lines

ROOT_MODULES = {"__init__", "__main__", "_imports", "_torchvision", "errors", "seeding", "noise"}
MAY_IMPORT = {
    "errors": set(),
    "seeding": set(),
    "noise": set(),
    "_imports": set(),
    "_torchvision": {"_imports"},
    "paper": {"errors"},
    "config": {"errors", "paper"},
    "runs": {"config", "errors"},
    "tracking": {"config", "data", "errors", "runs"},
    "qp": {"errors"},
    "data": {"config", "errors", "noise", "seeding"},
    "models": {"config", "errors", "noise", "seeding"},
    "kernels": {"errors", "models", "noise", "qp", "runs"},
    "algorithms": {"config", "errors", "kernels", "models", "paper", "qp", "runs", "seeding"},
    "engines": {"algorithms", "data", "errors", "kernels", "models", "seeding"},
    "federation": {
        *("algorithms", "config", "data", "engines", "errors", "kernels"),
        *("models", "noise", "runs", "seeding", "tracking"),
    },
    "reporting": {"config", "data", "errors", "paper", "runs"},
    "sweeps": {"config", "errors", "federation", "paper", "runs"},
    "dashboard": {"config", "errors", "paper", "reporting", "runs", "sweeps"},
    "__init__": {
        *("_torchvision", "algorithms", "config", "data", "errors", "federation"),
        *("models", "reporting", "runs", "sweeps"),
    },
    "cli": {
        *("_imports", "_torchvision", "algorithms", "config", "dashboard", "data", "errors", "federation"),
        *("kernels", "models", "paper", "reporting", "runs", "sweeps", "tracking"),
    },
    "__main__": {"cli"},
}
"""Every package and root module, and which others it may import, at the top of a file or inside a function."""

ONLY_INSIDE_FUNCTIONS = {("reporting", "data"), ("sweeps", "federation")}
"""Imports that bring torch along and are made when they are needed."""

LOADED_BY_NAME = {("config", name) for name in ("algorithms", "data", "models")}
"""The registries of ``config`` import the built-in package of a kind when a name is first looked up."""

WITHOUT_TORCH = ("config", "dashboard", "paper", "reporting", "runs")
WANDB_IMPORTERS = {"tracking", "cli", "runs"}


def name_of(source: Path) -> str:
    """The dotted name of a source file."""
    return ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def package_of(module: str) -> str:
    """The package or root module of a dotted name: ``federation`` for ``fl_platform.federation.pool``."""
    return module.split(".")[1] if "." in module else "__init__"


@functools.cache
def imports(source: Path, *, only_at_top: bool = False) -> frozenset[str]:
    """Every module or member a file imports; also a module named in a string, as for ``importlib``."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(source.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"fl_platform(\.\w+)+", str(node.value)):
            found.add(str(node.value))
        if only_at_top and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if only_at_top and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        waiting += ast.iter_child_nodes(node)
    return frozenset(found)


def edges(*, only_at_top: bool = False) -> dict[tuple[str, str], list[str]]:
    """(importer, imported) pairs of packages and root modules, with the files that import."""
    found: dict[tuple[str, str], list[str]] = {}
    for source in SOURCES:
        importer = package_of(name_of(source))
        modules = imports(source, only_at_top=only_at_top)
        for imported in sorted({package_of(module) for module in modules if module.startswith("fl_platform.")}):
            if imported != importer:
                found.setdefault((importer, imported), []).append(name_of(source))
    return found


def forbidden_edges() -> dict[tuple[str, str], list[str]]:
    """Imports that the tables above do not allow, with the files that make them."""
    everywhere = {edge: files for edge, files in edges().items() if edge[1] not in MAY_IMPORT[edge[0]]}
    at_top = {edge: files for edge, files in edges(only_at_top=True).items() if edge in ONLY_INSIDE_FUNCTIONS}
    return everywhere | at_top


def test_the_table_of_imports_is_complete_and_has_no_cycle() -> None:
    assert MAY_IMPORT.keys() == {package_of(name_of(source)) for source in SOURCES} | {"__init__"}
    assert len([*graphlib.TopologicalSorter(MAY_IMPORT).static_order()]) == len(MAY_IMPORT)


def test_imports_point_one_way() -> None:
    by_name = {edge: ["fl_platform.config.registry"] for edge in LOADED_BY_NAME}
    assert forbidden_edges() == by_name


def test_methods_know_only_the_names_of_metrics_among_runs() -> None:
    for source in SOURCES:
        if package_of(name_of(source)) == "algorithms":
            assert {module for module in imports(source) if package_of(module) == "runs"} <= {
                "fl_platform.runs.metrics"
            }


def test_the_package_does_not_import_what_stands_beside_it() -> None:
    for source in SOURCES:
        assert not {module.partition(".")[0] for module in imports(source)} & {"benchmarks", "tools", "tests"}, source


WITHOUT = """
import importlib, sys, warnings

class Refuse:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "lightning", "pytorch_lightning", "torchvision"):
            raise ModuleNotFoundError(name + " is refused", name=name)

warnings.simplefilter("ignore")
sys.meta_path.insert(0, Refuse)
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        print(module)
sys.exit("torch" in sys.modules or "lightning" in sys.modules)
"""


def test_what_reads_runs_needs_no_torch() -> None:
    """Every module of these packages can be imported where torch and Lightning cannot."""
    modules = [name_of(source) for source in SOURCES if package_of(name_of(source)) in WITHOUT_TORCH]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_only_tracking_knows_wandb() -> None:
    others = [source for source in SOURCES if package_of(name_of(source)) not in WANDB_IMPORTERS]
    assert [
        name_of(source) for source in others if any(name.split(".")[0] == "wandb" for name in imports(source))
    ] == []


def test_no_method_is_imported_by_name() -> None:
    """Methods know the contract and the parts they share, and everything else knows only the contract."""
    from fl_platform.algorithms import base

    methods = {base.get(name).__module__ for name in base.names()}
    assert {"fl_platform.algorithms.fedavg", "fl_platform.algorithms.fedprox"} <= methods
    for source in SOURCES:
        named = {".".join(module.split(".")[:3]) for module in imports(source)} & methods
        assert not named or package_of(name_of(source)) == "cli", f"{source} imports {named}"


def test_the_root_of_the_package_is_small() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} <= ROOT_MODULES


def test_no_file_is_named_for_leftovers() -> None:
    assert not {"utils", "helpers", "common", "misc"} & {path.stem for path in PACKAGE.rglob("*")}


def test_files_fit_a_reader() -> None:
    lengths = {name_of(source): len(source.read_text(encoding="utf-8").splitlines()) for source in SOURCES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_words() -> None:
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        assert re.findall(r"\b(?:TODO|FIXME|XXX)\b", text) == [], source
        found = re.findall(r"(?<!http\.)(?:\b|_)clients?(?![a-z])|Clients?(?![a-z])|CLIENT", text)
        assert found == [], f"{source}: say worker"


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
    for command in ("make setup", "make demo", "make test", "fl-platform run", "pip install ."):
        assert command in code


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def commands_in(code: str) -> set[str]:
    return set(re.findall(r"(?:-m fl_platform|fl-platform) ([a-z]+)", code))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documented_commands_exist(name: str) -> None:
    code = code_of(ROOT / name)
    assert set(re.findall(r"\bmake ([a-z]+)", code)) <= set(re.findall(r"^([a-z]+):", makefile(), re.MULTILINE))
    assert commands_in(code) <= set(COMMANDS)


def test_make_calls_commands_that_exist() -> None:
    assert commands_in(makefile()) == {"demo", "prepare"}
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
