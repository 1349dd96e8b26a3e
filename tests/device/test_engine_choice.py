"""``engine=auto``: fixed on a CPU, elsewhere the faster of both in a short trial, kept for the runs to come."""

import json

import pytest
import torch

from fl_platform.engines import trial
from fl_platform.engines.choice import Choice, choose_engine
from fl_platform.federation import engine_choice
from fl_platform.runs.checkpoint_files import newest_valid
from tests.device.runs import CPU, DEVICE, run_on
from tests.federations import make_config


def times(loop: float, stacked: float):
    return lambda: {"loop": loop, "stacked": stacked}


def taken(loop: float, stacked: float, *, is_whole: bool = True):
    return lambda: trial.Taken({"loop": loop, "stacked": stacked}, is_whole)


def no_trial():
    raise AssertionError("a trial where nothing is open")


def test_what_is_asked_for_and_the_cpu_need_no_trial():
    assert choose_engine("stacked", DEVICE, no_trial).engine == "stacked"
    assert choose_engine("auto", CPU, no_trial).engine == "loop"


@pytest.mark.parametrize(("loop", "stacked", "expected"), [(1.0, 2.0, "loop"), (2.0, 1.0, "stacked")])
def test_the_faster_engine_is_used_on_a_device(loop, stacked, expected):
    choice = choose_engine("auto", DEVICE, times(loop, stacked))
    assert choice.engine == expected
    assert "loop" in choice.sentence
    assert f"engine={expected}" in choice.sentence


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_choice, "CACHE", str(tmp_path))
    return tmp_path


def test_a_run_tries_both_engines_once_and_keeps_the_result(cache, capfd):
    config = make_config("num_rounds=1", "precision=float32")
    first = run_on(DEVICE, config).module
    [file] = cache.iterdir()
    kept = json.loads(file.read_text())
    assert set(kept["seconds"]) == {"loop", "stacked"}
    assert all(seconds > 0 for seconds in kept["seconds"].values())
    assert first.engine_choice.engine == min(kept["seconds"], key=kept["seconds"].get)
    assert "by a timed trial" in capfd.readouterr().err
    other = "loop" if first.engine_choice.engine == "stacked" else "stacked"
    file.write_text(json.dumps({**kept, "seconds": {**kept["seconds"], other: 0.0}}))
    assert run_on(DEVICE, config).module.engine_choice.engine == other


@pytest.mark.parametrize("change", ["model.norm=none", "cohort_size=2", "batch_size=4", "precision=float64"])
def test_other_circumstances_need_another_trial(change):
    about = [
        engine_choice.circumstances(make_config("precision=float32", *args), (1, 4, 4), DEVICE, 3)
        for args in ((), (change,))
    ]
    workers = [make_config(*args).cohort_size for args in ((), (change,))]
    assert (about[0], workers[0]) != (about[1], workers[1])


@pytest.mark.parametrize("text", ["", "[]", "null", '{"about": 3}', '{"about": {"a": 1}, "seconds": 4}'])
def test_a_damaged_cache_costs_a_trial(text, tmp_path):
    assert trial.kept(tmp_path, {"a": 1}, taken(1, 2)) == {"loop": 1, "stacked": 2}
    [file] = tmp_path.iterdir()
    file.write_text(text)
    assert trial.kept(tmp_path, {"a": 1}, taken(3, 4)) == {"loop": 3, "stacked": 4}
    assert trial.kept(tmp_path, {"a": 1}, no_trial) == {"loop": 3, "stacked": 4}


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    assert trial.kept(tmp_path / "file", {"a": 1}, taken(1, 2)) == {"loop": 1, "stacked": 2}


def test_a_trial_that_does_not_fit_takes_fewer_workers(monkeypatch):
    tried = []

    def fastest(training, params, buffers, workers, batch, chunk):
        tried.append((workers, chunk))
        if workers > 2:
            raise torch.OutOfMemoryError
        return float(chunk)

    monkeypatch.setattr(trial, "fastest", fastest)
    found = trial.seconds_of({"loop": None, "stacked": None}, torch.zeros(1), torch.zeros(0), 8, 4)
    assert found == ({"loop": 1.0, "stacked": 2.0}, False)
    assert tried == [(8, 1), (4, 1), (2, 1), (2, 2)]


def test_a_trial_that_did_not_fit_is_not_kept(tmp_path):
    """Another program may have held the memory; a later run tries again."""
    assert trial.kept(tmp_path, {"a": 1}, taken(1, 2, is_whole=False)) == {"loop": 1, "stacked": 2}
    assert not list(tmp_path.iterdir())
    assert trial.kept(tmp_path, {"a": 1}, taken(3, 4)) == {"loop": 3, "stacked": 4}


def test_a_device_without_memory_for_one_worker_is_left_to_the_loop():
    assert choose_engine("auto", DEVICE, dict) == Choice("loop", DEVICE.type)


def test_a_resumed_run_keeps_its_engine(tmp_path, monkeypatch):
    """Whatever a trial says by then, the rounds to come have the bits of an uninterrupted run."""
    config = make_config("num_rounds=3", "precision=float32")
    monkeypatch.setattr(trial, "kept", lambda *args: {"loop": 1.0, "stacked": 2.0})
    straight = run_on(DEVICE, config)
    run_on(DEVICE, make_config("num_rounds=2", "precision=float32"), checkpoints=tmp_path)
    monkeypatch.setattr(trial, "kept", lambda *args: {"loop": 2.0, "stacked": 1.0})
    resumed = run_on(DEVICE, config, resume=newest_valid(tmp_path))
    assert resumed.module.engine_choice.engine == "loop"
    assert resumed.module.fingerprint() == straight.module.fingerprint()
    assert run_on(DEVICE, config).module.engine_choice.engine == "stacked"
    asked = run_on(
        DEVICE, make_config("num_rounds=3", "precision=float32", "engine=stacked"), resume=newest_valid(tmp_path)
    )
    assert asked.module.engine_choice.engine == "stacked"
