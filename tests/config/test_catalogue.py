"""The catalogue says about every built-in name what the name itself says, and is renewed when a source changes."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fl_platform.algorithms import base
from fl_platform.algorithms.gradma import GradMA
from fl_platform.config import catalogue
from fl_platform.config.compose import compose
from fl_platform.config.descriptions import Description, NotPlain, to_json
from fl_platform.config.options import default_of, option, walk
from fl_platform.config.registry import ALGORITHMS, REGISTRIES, _made_catalogue
from fl_platform.config.resolve import resolve
from fl_platform.config.rules import Rules


def refuse() -> None:
    raise AssertionError("imported although the description has it")


def through_json(content: object) -> dict:
    return json.loads(json.dumps(content))


@pytest.mark.parametrize("name", ALGORITHMS.names())
def test_a_description_has_the_options_of_its_class(name: str) -> None:
    kind = base.get(name)
    found = Description.from_json(through_json(to_json(kind, kind.__module__)), refuse)
    assert [*found.options] == [key for key, _ in walk(kind)]
    for key, field in walk(kind):
        kept = found.options[key]
        assert (kept.name, kept.type, default_of(kept)) == (field.name, field.type, default_of(field))
        assert kept.metadata == {name: value for name, value in field.metadata.items() if value is not None}
    assert (found.name, found.label, found.kind, found.sends) == (kind.name, kind.label, kind.kind, kind.sends)
    assert found.summary == kind.__doc__.splitlines()[0]


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.key)
def test_everything_built_in_is_described(registry) -> None:
    described = registry.built_in()
    assert {*described} == {name for name, _ in registry.items() if registry._modules[name].startswith("fl_platform.")}
    assert through_json(described)


def test_what_is_not_described_comes_from_the_entry() -> None:
    entry = SimpleNamespace(load=len, size=3)
    found = Description.from_json(through_json(to_json(entry, "here")), lambda: entry)
    assert found.size == 3
    assert found.load is len
    with pytest.raises(AttributeError, match="absent"):
        _ = found.absent


class Light(Rules):
    @classmethod
    def check(cls, config) -> None:
        raise ValueError(config)


def test_rules_of_their_own_are_called_without_the_class_and_others_with_it() -> None:
    own = type("Own", (base.Algorithm,), {"check": classmethod(lambda cls, config: None)})
    chained = type("Chained", (Light, own), {})
    places = {kind: to_json(kind, "here")["rules"].get("check") for kind in (base.Algorithm, own, chained, GradMA)}
    assert places[base.Algorithm] == "fl_platform.config.rules:Rules"
    assert places[own] is None
    assert places[chained] is None  # its rules may call each other
    assert places[GradMA] == "fl_platform.algorithms.memory_rules:MemoryRules"
    light = Description.from_json(through_json(to_json(type("Mixed", (Light, base.Algorithm), {}), "here")), refuse)
    with pytest.raises(ValueError, match="asked"):
        light.check("asked")


def test_an_option_that_json_cannot_hold_is_not_described() -> None:
    class Odd(base.Algorithm):
        place: Path = option(Path(), "a place")

    with pytest.raises(NotPlain, match="place"):
        to_json(base.dataclass(eq=False)(Odd), "here")


def test_a_resolved_run_is_the_same_with_and_without_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose(["algorithm.name=gradma", "preset=released", "num_workers=30"])
    with_classes = resolve(config)
    for registry in REGISTRIES:
        kept = through_json(registry.built_in())
        monkeypatch.setattr(registry, "_entries", {})
        monkeypatch.setattr(registry, "_descriptions", {})
        monkeypatch.setattr(registry, "_known", lambda kept=kept: kept)
    assert resolve(config) == with_classes


def test_a_catalogue_without_data_sets_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "path", lambda: tmp_path / "kept.json")
    kept = {registry.key: registry.built_in() for registry in REGISTRIES}
    (tmp_path / "kept.json").write_text(json.dumps({**kept, "data.name": {}}), encoding="utf-8")
    catalogue.read.cache_clear()
    assert _made_catalogue.__wrapped__() == kept
    assert json.loads((tmp_path / "kept.json").read_text()) == through_json(kept)


def test_the_file_is_another_one_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    (package / "config").mkdir(parents=True)
    source = package / "config" / "one.py"
    source.write_text("a = 1")
    monkeypatch.setattr(catalogue, "__file__", str(source))
    monkeypatch.setattr(catalogue.platformdirs, "user_cache_dir", lambda name: str(tmp_path / "cache"))
    paths = []
    for change in (lambda: None, lambda: os.utime(source, ns=(1, 1)), lambda: source.write_text("a = 22")):
        change()
        catalogue.path.cache_clear()
        paths.append(catalogue.path())
    assert len({*paths}) == 3
    for place in paths:
        monkeypatch.setattr(catalogue, "path", lambda place=place: place)
        catalogue.read.cache_clear()
        assert catalogue.read() is None
        catalogue.write({"key": {}})
        assert json.loads(place.read_text()) == {"key": {}}
    monkeypatch.setattr(catalogue, "KEPT", 1)
    catalogue.write({})
    assert [*(tmp_path / "cache" / "catalogue").iterdir()] == [paths[-1]]


@pytest.fixture(autouse=True)
def _restore_caches():
    yield
    for cached in (catalogue.path, catalogue.read):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()
