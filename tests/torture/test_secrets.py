"""The key of an account is nowhere, foreign files run nothing, names stay in their directory, versions are fixed."""

import ast
import base64
import gzip
import importlib.metadata
import os
import re
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement

from fl_platform.sweeps.definition import read_sweep
from fl_platform.sweeps.ledger import Ledger
from tests.sweeps.small_sweeps import SMALL, write_sweep
from tests.torture.hostile import call
from tests.wandb_server import API_KEY, ENTITY, WandbServer

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "fl_platform").rglob("*.py"))
HOSTILE = "../../../out\x1b[31m<script>alert(1)</script>\\input{x}"


# --- the key ---


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and those of what is packed inside it."""
    data = path.read_bytes()
    yield data
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            yield from (packed.read(name) for name in packed.namelist())
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    if data[:4] == b"PAR1":
        yield str(pq.read_table(path).to_pydict()).encode()
    if path.suffix == ".arrow":
        table = pa.ipc.open_file(pa.py_buffer(data[:-4])).read_all()
        yield str((table.schema.metadata, table.to_pydict())).encode()


COMMANDS = """
import sys
from fl_platform.cli import main
from fl_platform.cli.sweep import forget_wandb

small = sys.argv[1:]
print(main(["run", *small, "output.dir=runs", "algorithm.name=scaffold", "checkpoint.every=1"]))
forget_wandb()
print(main(["run", *small, "output.dir=runs", "local_lr=1e30", "model.norm=none"]))
print(main(["run", *small, "output.dir=runs", "data.name=mnist", "data.root=nowhere"]))
print(main(["sweep", "run", "sweep.yaml", *small, "output.dir=runs", "--in-process"]))
print(main(["report", "all", "--source", "runs", "--archive", "--html"]))
print(main(["publish", "me/project", "--source", "runs", "--offline-out", "published"]))
print(main(["config"]), main(["doctor"]), main(["doctor", "--json"]))
forget_wandb()
sys.exit(main(["run", *small, "output.dir=runs", "algorithm.name=broken", "plugins=[broken]"]))
"""
BROKEN = """
from dataclasses import dataclass

from fl_platform.algorithms.base import Algorithm


@dataclass(eq=False)
class Broken(Algorithm, name="broken", label="Broken"):
    'Fails in the first local step.'

    def local_direction(self, step):
        raise RuntimeError("broken on purpose")
"""


def test_the_key_is_in_no_file_and_on_no_screen(tmp_path: Path, scale: Callable[[int, int], int]) -> None:
    """A run, one that diverges, one refused, one that fails, a sweep, a report, a page, a publication, a server."""
    key = secrets.token_hex(20)
    (tmp_path / "broken.py").write_text(BROKEN)
    write_sweep(tmp_path / "sweep.yaml", {"seed": {"values": [3]}})
    (tmp_path / "reports" / "all").mkdir(parents=True)
    (tmp_path / "reports" / "all" / "report.yaml").write_text("tables: [{kind: statistic, name: top, select: best}]\n")
    places = {name: str(tmp_path / "places") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    own = {**os.environ, **places, "WANDB_API_KEY": key, "HOME": str(tmp_path / "home")}
    own["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    for name in ("WANDB_DIR", "FL_DATA_ROOT", "XDG_CACHE_HOME"):
        own.pop(name, None)
    command = [sys.executable, "-c", COMMANDS, *SMALL]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, check=False, timeout=600)
    codes = re.findall(rb"^[0-9]$", done.stdout, re.MULTILINE)
    assert codes == [b"0", b"3", b"2", b"0", b"0", b"0"], done.stderr[-3000:]
    assert b"broken on purpose" in done.stderr
    assert done.returncode == 1
    screens = done.stdout + done.stderr + (online_run(tmp_path, places) if scale(0, 1) else b"")
    forms = [
        form for one in (key, API_KEY) for form in (one.encode(), *map(packed, (f"api:{one}", f"user:{one}", one)))
    ]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    found = [path for path in files if any(form in part for part in contents(path) for form in forms)]
    assert found == []
    assert not [form for form in forms if form in screens]
    kinds = {path.suffix for path in files}
    assert {".ckpt", ".jsonl", ".json", ".yaml", ".wandb", ".log", ".parquet", ".html", ".arrow", ".sqlite"} <= kinds


def packed(text: str) -> bytes:
    """As an HTTP header would carry it."""
    return base64.b64encode(text.encode())


def online_run(place: Path, places: dict[str, str]) -> bytes:
    """What a run prints that logs, with the key it accepts, to a server on this machine."""
    with WandbServer() as server:
        own = {**server.environment(), **places, "HOME": str(place / "home")}
        own["PYTHONPATH"] = str(ROOT)
        args = [*SMALL, "output.dir=runs", "seed=9", "tracking.mode=online", f"tracking.entity={ENTITY}"]
        command = [sys.executable, "-m", "fl_platform", "run", *args]
        done = subprocess.run(command, cwd=place, env=own, capture_output=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(server.runs) == 1
    return done.stdout + done.stderr


# --- names ---


def test_names_and_values_cannot_leave_the_output_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names the project, the group, the tags and the sweep, files appear below output.dir alone."""
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    args = (f"tracking.group={HOSTILE}", f"tracking.tags=['{HOSTILE}']", "data.name=digits")
    call("run", *SMALL, *args, "output.dir=runs", "trainer.enable_progress_bar=false")
    call("run", *SMALL, "output.dir=runs", "tracking.project=../../../out", "trainer.enable_progress_bar=false")
    write_sweep(place / "s.yaml", {"seed": {"values": [1]}}, name=HOSTILE)
    sweep = read_sweep(place / "s.yaml", ["output.dir=runs"])
    assert sweep.directory.parent == Path("runs/sweeps")
    assert sweep.directory.name not in (".", "..")
    sweep.write_copy(sweep.directory)
    Ledger(sweep.directory).close()
    outcome = call("sweep", "status", str(sweep.directory))
    assert outcome.code == 0
    assert "\x1b" not in outcome.out + outcome.err
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert all(path.parts[:4] == ("a", "b", "c", "runs") or path.name == "s.yaml" for path in written), written


# --- the sources ---


def calls(source: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> str:
    return next((ast.unparse(one.value) for one in call.keywords if one.arg == name), "")


def test_nothing_in_the_sources_runs_what_it_reads() -> None:
    seen = set()
    for source in SOURCES:
        for name, node in calls(source):
            place = f"{source.relative_to(ROOT)}:{node.lineno}"
            assert name not in ("eval", "exec", "compile", "__import__", "os.system", "os.popen", "tempfile.mktemp"), (
                place
            )
            assert keyword(node, "shell") != "True", place
            assert not re.fullmatch(r"yaml\.(full_load|unsafe_load)(_all)?", name), place
            assert not re.fullmatch(r"(pickle|dill|joblib|cloudpickle|marshal|shelve)\.\w*(load|open)\w*", name) or (
                source.name == "readers.py"
            ), f"{place} unpickles"
            if name in ("yaml.load", "yaml.load_all"):
                assert "SafeLoader" in keyword(node, "Loader"), place
            if name == "torch.load":
                assert keyword(node, "weights_only") == "True", place
            if name == "np.load":
                assert keyword(node, "allow_pickle") == "False", place
            if name.endswith(".extractall"):
                assert keyword(node, "filter") == "'data'", place
            seen.add(name)
    assert {"torch.load", "yaml.load", "np.load", "pickle.loads", "content.extractall"} <= seen  # still looked at


def test_the_one_pickle_that_is_opened_is_verified_first() -> None:
    """CIFAR is published as pickles: what is opened has the published md5, or nothing is opened."""
    tree = ast.parse((ROOT / "fl_platform" / "data" / "readers.py").read_text(encoding="utf-8"))
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and "pickle.loads" in ast.unparse(node)
    ]
    assert [node.name for node in functions] == ["read_cifar_pickle"]
    verified, loaded = [ast.unparse(line) for line in functions[0].body[1:3]]  # behind the docstring
    assert verified == "published = read_verified(path, md5)"
    assert "pickle.loads(published" in loaded


# --- versions ---


def test_every_package_that_is_needed_is_pinned_to_what_is_installed() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {normal(name): version for name, version in pinned.items()}
    needed = [
        Requirement(line.split("#")[0])
        for file in ("requirements.txt", "requirements-dev.txt")
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
        if line and not line.startswith(("#", "-r"))
    ]
    seen: set[tuple[str, frozenset[str]]] = set()
    while needed:
        requirement = needed.pop()
        name, extras = normal(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen or re.match(r"nvidia|cuda|triton", name):  # wheels of torch for GPUs
            continue
        seen.add((name, extras))
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.fail(f"{name} is needed and not installed")
        assert name in pinned, f"{name} is needed and not in constraints.txt"
        assert package.version.partition("+")[0] == pinned[name], name
        inner = map(Requirement, package.requires or [])
        needed += [one for one in inner if is_asked_for(one, extras)]
    assert len({name for name, _ in seen}) > 60


def is_asked_for(requirement: Requirement, extras: frozenset[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": one}) for one in extras or {""})


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
