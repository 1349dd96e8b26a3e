"""``plan``: estimates beside what real runs hold at most, and settings that fit a card."""

from dataclasses import replace

import pytest
import torch

from fl_platform.algorithms import base
from fl_platform.cli.plan import main, size_of
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.errors import UserError
from fl_platform.federation.allocations import Allocations
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.plan import Needs, fitting, needs_of
from fl_platform.federation.trainer import attach, make_trainer

CPU = torch.device("cpu")
SMALL = (
    "data.name=digits", "data.partition=iid", "num_workers=20", "cohort_size=5", "local_steps=3", "batch_size=32",
    "tracking.mode=disabled", "trainer.enable_progress_bar=false", "device=cpu",
)  # fmt: skip


def spec_of(*args):
    return resolve(compose([*SMALL, *args]))


@pytest.mark.parametrize(
    "args",
    [
        ("engine=loop", "model.name=lenet5", "plugins=[benchmarks.synthetic]", "data.name=random_cifar10_small"),
        ("engine=stacked", "model.norm=none", "algorithm.name=scaffold"),
        ("engine=stacked", "model.norm=none", "algorithm.name=moon", "cohort_chunk=2"),
        ("engine=stacked", "algorithm.name=gradma"),
        (
            *("engine=stacked", "model.name=resnet20", "model.width=4", "batch_size=8", "num_rounds=1"),
            *("data.name=random_cifar10_small", "plugins=[benchmarks.synthetic]"),
        ),
    ],
    ids=" ".join,
)
def test_estimates_are_within_15_percent_of_what_a_run_holds_at_most(args):
    """Bytes of all tensors that a real run on the CPU makes and keeps; the data set as stored was there before."""
    spec = spec_of("num_workers=5", "num_rounds=2", "evaluation.every=2", *args)
    needs = needs_of(spec.config)
    algorithm = make_algorithm(spec.config)
    with Allocations(CPU) as measured:
        attach(make_trainer(spec), [], [algorithm]).fit(build(spec.config, algorithm))
    estimated = needs.total() - needs.data
    assert estimated == pytest.approx(measured.peak, rel=0.15)


@pytest.mark.parametrize("name", base.names())
def test_every_method_can_be_planned(name):
    sampling = "epochs" if name.startswith("dp_ftrl") else "fixed"
    args = (f"algorithm.name={name}", "model.norm=group", f"cohort_sampling={sampling}", "num_rounds=50")
    config = spec_of(*args).config
    needs = needs_of(config)
    assert needs.worker > 3 * needs.parameters  # parameters, gradients and activations
    assert needs.total() > needs.permanent > needs.data
    kept = make_algorithm(config).keeps
    assert bool(needs.worker_state) == bool(kept)


def test_memory_grows_with_the_stack_as_estimated():
    """The estimate for a long stack is made from two short ones."""
    long, short = (needs_of(spec_of("device=auto", f"cohort_chunk={chunk}").config) for chunk in (5, 3))
    assert long.worker == short.worker
    assert long.total() - short.total() == 2 * long.worker


NEEDS = Needs(
    parameters=1, data=100, evaluated=0, server=100, memory=400, worker_state=300, cohort=100, worker=50,
    server_step=100, evaluation=50, cohort_size=10, workers_at_once=10,
)  # fmt: skip


def keys(card):
    return [" ".join(setting.keys) for setting in fitting(NEEDS, card)]


def test_the_simplest_settings_come_first():
    assert NEEDS.total() == 1500
    assert keys(2000)[0] == ""
    assert keys(1500)[:2] == ["state.device=cpu", "algorithm.memory_device=cpu"]  # 1,350 are free
    assert all("cohort_chunk=" in each for each in keys(500))
    assert keys(300) == []


def test_a_smaller_chunk_is_the_largest_that_fits():
    plain = replace(NEEDS, memory=0, worker_state=0)
    [setting] = fitting(plain, 667)  # 601 are free, 300 of them for the stack
    assert setting.keys == ("cohort_chunk=6",)
    assert setting.bytes == 600


@pytest.mark.parametrize(("text", "size"), [("24GB", 24 * 10**9), ("1.5 GiB", 3 << 29), ("512mb", 512 * 10**6)])
def test_sizes(text, size):
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["24", "GB", "24TB", "-3GB", "0GB", "nanGB"])
def test_sizes_that_are_none(text):
    with pytest.raises(UserError, match=r"--card=.*such as 24GB"):
        size_of(text)


def test_the_command(capsys):
    assert main([*SMALL, "algorithm.name=gradma", "num_rounds=5", "--card", "24GB"]) == 0
    out = capsys.readouterr().out
    assert "gradient memory" in out
    assert "fits as it is" in out
    assert main([*SMALL, "--card", "1MB"]) == 1
    assert "does not fit" in capsys.readouterr().out
