"""Models and data sets of other people: odd ones train, impossible ones are named in one sentence."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.config.registry import DATASETS
from fl_platform.runs.reader import read_directory
from fl_platform.runs.status import Ending

KEYS = ["num_workers=4", "cohort_size=2", "num_rounds=2", "local_steps=1", "data.dirichlet_omega=10"]
KEYS += ["checkpoint.every=1", "tracking.mode=disabled", "trainer.enable_progress_bar=false"]

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
        {init}
    def forward(self, x):
        x = x.flatten(1)
        {forward}
"""
PLAIN = "return self.layer(x)"
MODELS = {  # name: (in __init__, in forward, exit code, part of the sentence)
    "integer buffer": ("self.register_buffer('i', torch.arange(64))", "return self.layer(x[:, self.i])", 0, ""),
    "truth buffer": ("self.register_buffer('m', torch.ones(64).bool())", "return self.layer(x * self.m)", 0, ""),
    "counting buffer": ("self.register_buffer('n', torch.zeros((), dtype=torch.long))", f"self.n += 1; {PLAIN}", 0, ""),
    "complex buffer": ("self.register_buffer('w', torch.ones(64) * 1j)", PLAIN, 2, "'w' is complex; only real tensors"),
    "complex inside": ("pass", "return self.layer(torch.fft.fft(x).real)", 0, ""),
    "tied weights": (
        "self.b = nn.Linear(64, 10); self.b.weight = self.layer.weight",
        "return self.layer(x) + self.b(x)",
        2,
        "'b.weight' shares its tensor with another module",
    ),
    "one module twice": ("self.b = self.layer", "return self.layer(x) + self.b(x)", 0, ""),
    "in-place activation": ("self.act = nn.ReLU(inplace=True)", "return self.act(self.layer(x))", 0, ""),
    "in place on its input": ("pass", f"x.mul_(0.5); {PLAIN}", 0, ""),
    "no parameters": ("del self.layer", "return x[:, :10]", 2, "has no parameters to train"),
    "unused parameters": ("self.b = nn.Linear(3, 3)", PLAIN, 1, "round 1: your code failed in Net ("),
    "no gradient": ("pass", "return self.layer(x).detach()", 1, "round 1: your code failed in Net ("),
    "raises at once": ("pass", "return self.missing(x)", 1, "before the first round: your code failed in forward ("),
    "raises later": (
        "self.calls = 0",
        f"self.calls += 1; assert self.calls < 5, 'enough'; {PLAIN}",
        1,
        "your code failed in forward (",
    ),
    "wrong number of outputs": ("pass", "return self.layer(x)[:, :3]", 2, "gives outputs of shape (3,) for 10 classes"),
}
EVERY_TIME = ("complex buffer", "raises at once")

LABELS = """
from pathlib import Path
import numpy as np
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset
times = 0

class Odd(Dataset, name="odd_labels"):
    num_classes, shape, mean, std = 4, (1, 8, 8), (0.5,), (0.2,)

    def load(self, folder: Path):
        global times
        times += 1
        rng = np.random.default_rng(0)
        labels = rng.integers(4, size=400) + ({wrong} if times == 3 else 0)
        pixels = rng.integers(0, 255, (400, 1, 8, 8)).astype(np.uint8)
        {act}
        return Samples.from_arrays(pixels[:300], labels[:300]), Samples.from_arrays(pixels[300:], labels[300:])
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the module ``foreign`` is to be written; it and its data set are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "foreign.py"
    sys.modules.pop("foreign", None)
    DATASETS._entries.pop("odd_labels", None)


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_or_is_named(
    name: str, engine: str, module: Path, tmp_path: Path, scale: Callable[[int, int], int], capsys
) -> None:
    if not scale(0, 1) and (name not in EVERY_TIME or engine == "stacked"):
        pytest.skip("the other models: only with --torture")
    init, forward, code, sentence = MODELS[name]
    module.write_text(NET.format(init=init, forward=forward))
    found = main(["run", *KEYS, "model.name=foreign.Net", f"engine={engine}", f"output.dir={tmp_path}"])
    error = capsys.readouterr().err
    assert found == code, error
    assert code == 0 or sentence in error.splitlines()[-1]
    assert "lightning" not in error
    for config in tmp_path.glob("*/config.yaml"):
        assert read_directory(config.parent).ending is (Ending.FINISHED if code == 0 else Ending.USER_CODE)


@pytest.mark.parametrize("wrong", [4, -4, 1_000_000])
def test_labels_that_are_out_of_range_the_third_time_are_refused(
    wrong: int, module: Path, tmp_path: Path, capsys
) -> None:
    module.write_text(LABELS.format(wrong=wrong, act="pass"))
    keys = [*KEYS, "plugins=[foreign]", "data.name=odd_labels", "model.name=mlp", f"output.dir={tmp_path}"]
    codes = [main(["run", *keys, f"seed={seed}"]) for seed in range(4)]
    assert codes == [0, 0, 2, 0]
    assert "odd_labels" in capsys.readouterr().err


def test_a_data_set_that_raises_is_named(module: Path, tmp_path: Path, capsys) -> None:
    module.write_text(LABELS.format(wrong=0, act="raise KeyError('no such file')"))
    keys = [*KEYS, "plugins=[foreign]", "data.name=odd_labels", "model.name=mlp", f"output.dir={tmp_path}"]
    assert main(["run", *keys]) == 1
    assert "before the first round: your code failed in load (" in capsys.readouterr().err.splitlines()[-1]


def test_a_model_of_a_hundred_million_parameters_is_trained_and_goes_on(
    module: Path, tmp_path: Path, scale: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    if not scale(0, 1):
        pytest.skip("some gigabytes of memory: only with --torture")
    module.write_text(
        NET.format(init="self.wide = nn.Linear(64, 1_550_000)", forward="return self.layer(x) + self.wide(x).mean()")
    )
    keys = [*KEYS, "model.name=foreign.Net", f"output.dir={tmp_path}", "num_workers=2", "cohort_size=1", "engine=loop"]
    keys += ["checkpoint.every=2"]
    assert main(["run", *keys]) == 0
    [result] = tmp_path.glob("*/result.json")
    assert read_directory(result.parent).ending is Ending.FINISHED
    record_property("parameters of the largest foreign model", 650 + 65 * 1_550_000)
