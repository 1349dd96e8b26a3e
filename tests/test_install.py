"""The wheel holds all that the commands need: it is built, installed and used from a directory without a checkout."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fl_platform
from fl_platform.cli import main
from fl_platform.config.schema import Config
from fl_platform.errors import UserError
from fl_platform.paper.packaged import chosen_file, packaged, sweep_file

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "fl_platform", "sweeps", "reports")

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the source distribution is installed to, through its wheel and without its requirements."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    packed = tmp_path_factory.mktemp("packed")
    subprocess.run([sys.executable, "-c", build, str(packed)], cwd=source, check=True, capture_output=True)
    [archive] = packed.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--target", str(place)]
    subprocess.run([*pip, "install", *options, str(archive)], check=True, capture_output=True)
    shutil.rmtree(source)
    return place


@pytest.fixture
def command(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Call the installed ``fl-platform`` in an empty directory, ``then`` once more; it must succeed."""
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def call(*args: str, then: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        program = [str(installed / "bin" / "fl-platform"), *args]
        if then:
            both = f"from fl_platform.cli import main; raise SystemExit(main({[*args]}) or main({[*then]}))"
            program = ["-c", both]
        done = subprocess.run(
            [sys.executable, *program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    return call


def test_the_installed_package_has_its_sweeps_and_reports(installed: Path, command: Command) -> None:
    assert command("--version").stdout == f"fl_platform {fl_platform.__version__}\n"
    listed = [line.split()[0] for line in command("report").stdout.splitlines()]
    assert listed == sorted(path.parent.name for path in ROOT.glob("reports/*/report.yaml"))
    files = installed / "fl_platform" / "paper" / "files"
    assert {path.name for path in (files / "sweeps").iterdir()} == {path.name for path in ROOT.glob("sweeps/*.yaml")}
    archives = [path.relative_to(ROOT) for path in ROOT.glob("reports/*/runs.parquet")]
    assert {"benchmark", "mnist", "rates", "robust"} <= {path.parent.name for path in archives}
    for archive in archives:
        assert (files / archive).read_bytes() == (ROOT / archive).read_bytes()
    assert (installed / "fl_platform" / "py.typed").exists()


def test_a_packaged_sweep_runs_and_is_reported_anywhere(command: Command, tmp_path: Path) -> None:
    small = ("algorithm.name=[fedavg]", "seed=[0]", "num_rounds=1", "tracking.mode=disabled", "output.dir=runs/demo")
    report = ("report", "--source", "runs/demo", "--rows", "algorithm.name")
    printed = command("sweep", "run", "demo_digits", "--in-process", *small, then=report).stdout
    assert "1/1 done" in printed
    assert (tmp_path / "runs" / "demo" / "sweeps").is_dir()
    assert "FedAvg" in printed.partition("1/1 done")[2]


def test_a_packaged_sweep_finds_its_chosen_values_anywhere(command: Command) -> None:
    keys = ("scenario=mnist_w0.01_s10", "algorithm.name=fedavgm", "chosen=sweeps/chosen_mnist.yaml")
    printed = command("config", *keys)
    assert printed.stderr == ""
    chosen = yaml.safe_load((ROOT / "sweeps" / "chosen_mnist.yaml").read_text(encoding="utf-8"))["chosen"]
    wanted = chosen["mnist_w0.01_s10"]["fedavgm"]["keys"]
    assert yaml.safe_load(printed.stdout)["local_lr"] == wanted["local_lr"] != Config().local_lr


def test_a_checkout_uses_its_own_folders() -> None:
    assert packaged("sweeps") == ROOT / "sweeps"
    assert packaged("reports") == ROOT / "reports"


def test_a_bare_name_is_a_packaged_sweep_and_a_path_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sweep_file(Path("table_mnist")) == ROOT / "sweeps" / "table_mnist.yaml"
    assert sweep_file(Path("table_mnist.yaml")) == Path("table_mnist.yaml")
    assert sweep_file(Path("sweeps/table_mnist")) == Path("sweeps/table_mnist")
    Path("table_mnist").mkdir()
    assert sweep_file(Path("table_mnist")) == Path("table_mnist"), "what lies in the working directory wins"
    with pytest.raises(UserError, match="sweep table_mist is not known; did you mean 'table_mnist'"):
        sweep_file(Path("table_mist"))
    with pytest.raises(UserError, match="chosen_mnist is not known"):
        sweep_file(Path("chosen_mnist"))


def test_chosen_values_of_the_working_directory_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = Path("sweeps", "chosen_mnist.yaml")
    assert chosen_file(own) == ROOT / own
    assert chosen_file(Path("chosen_mnist.yaml")) == Path("chosen_mnist.yaml")
    own.parent.mkdir()
    own.touch()
    assert chosen_file(own) == own


def test_a_packaged_report_keeps_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "mnist", "--archive", "--source", "runs"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--archive needs a report of your own: copy " in error


def pinned(name: str) -> dict[str, Requirement]:
    """The requirements of a file by package."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith(("#", "-r "))]
    return {canonicalize_name(one.name): one for one in found}


def test_the_ranges_of_the_wheel_contain_the_pins() -> None:
    lock = pinned("constraints.txt")
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    for line in [*PROJECT["dependencies"], *extras]:
        wanted = Requirement(line)
        version = str(lock[canonicalize_name(wanted.name)].specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{line} leaves out the tested {version}"
        assert {one.operator for one in wanted.specifier} == {">=", "<"}, f"{line} needs a lower and an upper end"


def test_requirements_are_the_packages_of_the_wheel_and_of_its_reports() -> None:
    wheel = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["reports"]]
    assert {canonicalize_name(Requirement(line).name) for line in wheel} == pinned("requirements.txt").keys()
