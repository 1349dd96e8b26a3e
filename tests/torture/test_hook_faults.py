"""Every hook of a method fails in every way that it can: named with hook and round, checkpoint intact, run crashed."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.config.registry import ALGORITHMS
from fl_platform.runs.checkpoint_files import newest_valid
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.reader import read_directory
from fl_platform.runs.status import Ending

PLUGIN = '''
from dataclasses import dataclass
import torch
from fl_platform import Algorithm

@dataclass(eq=False)
class Faulty(Algorithm, name="faulty", label="Faulty"):
    """Its hook {hook} fails from the second round on."""

    {declared}

    def begin_round(self, workers, round):
        self.is_due = round >= 2
        {begin}

    def {hook}(self, *given):
        value = {value}
        if {due}:
            {fault}
        return value
'''
TENSOR = {
    "raises": "raise RuntimeError('no idea')",
    "shape": "value = value[..., :1]",
    "type": "value = value.double()",
    "device": "value = value.to('meta')",
    "nothing": "value = None",
    "nan": "value = value * float('nan')",
    "text": "value = 'direction'",
}
PAIR = {
    "raises": TENSOR["raises"],
    "shape": "value = (value[0][..., :1], value[1])",
    "type": "value = (value[0].double(), value[1])",
    "device": "value = (value[0].to('meta'), value[1])",
    "nothing": "value = None",
    "nan": "value = (value[0] * float('nan'), value[1])",
    "one": "value = value[0]",
    "three": "value = (*value, value[0])",
}
SENT = {
    "raises": TENSOR["raises"],
    "nothing": "value = None",
    "missing": "value = {}",
    "unknown": "value = {'extra': given[0].delta, 'other': given[0].delta}",
    "shape": "value = {'extra': given[0].delta[:, :1]}",
    "type": "value = {'extra': given[0].delta.double()}",
    "device": "value = {'extra': given[0].delta.to('meta')}",
    "text": "value = {'extra': 'x'}",
}
FIGURES = {
    "raises": TENSOR["raises"],
    "nothing": "value = None",
    "text": "value = {'qp/x': 'high'}",
    "list": "value = {'qp/x': [1, 2]}",
}
FAULTS = {
    "adapt_network": {"raises": TENSOR["raises"]},
    "prepare": {"raises": TENSOR["raises"]},
    "begin_round": {"raises": TENSOR["raises"]},
    "start_local": PAIR,
    "local_loss": {**{name: TENSOR[name] for name in TENSOR if name != "type"}, "shape": "value = value[:, None]"},
    "local_direction": TENSOR,
    "finish_local": SENT,
    "server_direction": TENSOR,
    "evaluated_params": TENSOR,
    "also_evaluated": {
        "raises": TENSOR["raises"],
        "nothing": "value = None",
        "shape": "value = {'x': given[0][:1]}",
        "text": "value = {'x': 'y'}",
    },
    "worker_model": PAIR,
    "diagnostics": FIGURES,
    "state_dict": {"raises": TENSOR["raises"]},
}
CASES = [(hook, fault) for hook, faults in FAULTS.items() for fault in faults]
EVERY_TIME = [("start_local", "three"), ("finish_local", "missing"), ("diagnostics", "text"), ("local_loss", "shape")]
KEYS = ["plugins=[faulty_plugin]", "algorithm.name=faulty", "num_workers=4", "cohort_size=2", "num_rounds=3"]
KEYS += ["local_steps=1", "checkpoint.every=1", "data.dirichlet_omega=10", "tracking.mode=disabled"]
KEYS += ["trainer.enable_progress_bar=false"]
WHEN = {"adapt_network": "before the first round", "prepare": "round 1"}


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the module ``faulty_plugin`` is to be written; it and its method are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "faulty_plugin.py"
    sys.modules.pop("faulty_plugin", None)
    ALGORITHMS._entries.pop("faulty", None)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize(("hook", "fault"), CASES)
def test_the_hook_is_named_with_its_round_and_the_checkpoint_stays(
    hook: str, fault: str, engine: str, plugin: Path, tmp_path: Path, scale: Callable[[int, int], int], capsys
) -> None:
    if not scale(0, 1) and ((hook, fault) not in EVERY_TIME or engine == "stacked"):
        pytest.skip("the other faults: only with --torture")
    source = PLUGIN.format(
        hook="never" if hook == "begin_round" else hook,
        value="{'extra': given[0].delta}" if hook == "finish_local" else f"super().{hook}(*given)",
        declared="sends = ('extra',)" if hook == "finish_local" else "",
        begin="if round >= 2: raise RuntimeError('no idea')" if hook == "begin_round" else "pass",
        due="True" if hook in WHEN else "getattr(self, 'is_due', False)",
        fault=FAULTS[hook][fault],
    )
    plugin.write_text(source)
    more = ["evaluation.workers=true", "data.worker_test_fraction=0.2"] if hook == "worker_model" else []
    code = main(["run", *KEYS, *more, f"engine={engine}", f"output.dir={tmp_path}"])
    error = capsys.readouterr().err
    if fault == "nan":
        assert code == (0 if hook == "worker_model" else 3), "a worker's own model is scored, not trained on"
        return
    assert code == 1, error
    assert f"{WHEN.get(hook, 'round 2')}: your code failed in {hook} ({plugin}, line " in error.splitlines()[-1]
    assert "lightning" not in error
    if hook == "adapt_network":
        assert not list(tmp_path.glob("*/config.yaml")), "the run had not begun"
        return
    [config] = tmp_path.glob("*/config.yaml")
    record = read_directory(config.parent)
    assert record.ending is Ending.USER_CODE
    if hook != "prepare":
        attempt = RunDirectory(tmp_path, config.parent.name).newest_attempt()
        assert attempt is not None
        assert newest_valid(attempt / "checkpoints") is not None
        assert record.history.num_rows == (2 if hook == "state_dict" else 1)


def test_how_many_faults_there_are(record_property: Callable[[str, object], None]) -> None:
    for hook, faults in FAULTS.items():
        record_property(f"faults injected into {hook}, in both engines", 2 * len(faults))
