"""Two processes of real torch.distributed (gloo) give what one process gives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fl_platform.engines.ranks import Ranks, balanced_shares
from fl_platform.runs import metrics
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.distributed.two_ranks import ARGUMENTS, READINGS, SHARED, results, scores
from tests.federations import make_config, train


def test_shares_cover_everything_once():
    for size in (1, 2, 3, 7):
        for count in (0, 1, 5, 50):
            shares = [range(count)[Ranks(rank, size).share(count)] for rank in range(size)]
            assert [row for share in shares for row in share] == list(range(count))


@pytest.mark.parametrize(
    ("size", "steps", "sums"),
    [
        (2, [100, *[1] * 9], [100, 9]),
        (2, [8, 4, 2, 1, 1], [8, 8]),
        (3, [9, 6, 3, 3, 3, 3], [9, 9, 9]),
        (2, [7, 1], [7, 1]),
        (3, [5, 1], [0, 5, 1]),
        (2, [3], [0, 3]),
    ],
)
def test_ranks_share_unequal_work_by_its_steps(size, steps, sums):
    shares = balanced_shares(size, steps)
    assert [row for rows in shares for row in range(len(steps))[rows]] == list(range(len(steps)))
    assert [sum(steps[rows]) for rows in shares] == sums


def test_equal_work_is_shared_by_the_number_of_workers():
    for size in (1, 2, 3, 7):
        for count in (0, 1, 5, 50):
            expected = [Ranks(rank, size).share(count) for rank in range(size)]
            assert balanced_shares(size, [4] * count) == expected


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What one process and two processes give, by name."""
    folder = tmp_path_factory.mktemp("ranks")
    args = ("algorithm.name=gradma", "algorithm.qp.scope=global", SHARED, *ARGUMENTS)
    train(make_config(*args), checkpoints=folder / "one_rank")
    script = Path(__file__).with_name("two_ranks.py")
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, str(script), str(folder)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    two = torch.load(folder / "two_ranks.pt", weights_only=True)
    one = results(folder / "one", ranks=1)
    one["resumed"] = train(make_config(*args, "num_rounds=5"))
    return one, two, folder


def test_two_ranks_equal_one_for_every_algorithm(both):
    one, two, _ = both
    assert set(one) == set(two)
    for name, done in one.items():
        params, buffers, top_accuracy = two[name]
        assert torch.allclose(done.params, params, rtol=0, atol=1e-12), name
        assert torch.allclose(done.module.global_buffers, buffers, rtol=0, atol=1e-12), name
        assert done.module.scoreboard.top_accuracy == top_accuracy, name


def test_one_rank_resumes_what_two_ranks_saved_with_a_sharded_memory(both):
    one, _, folder = both
    [(round, newest), *_] = sorted_checkpoints(folder / "gradma-global")
    args = ("algorithm.name=gradma", "algorithm.qp.scope=global", *ARGUMENTS, "num_rounds=5")
    resumed = train(make_config(*args), resume=newest)
    assert round == 3
    assert torch.allclose(one["resumed"].params, resumed.params, rtol=0, atol=1e-12)


def test_two_ranks_log_what_one_logs_of_both_models(both):
    two = json.loads((both[2] / "scores.json").read_text(encoding="utf-8"))
    for reading, one in scores(ranks=1).items():
        assert [set(row) for row in one] == [set(row) for row in two[reading]]
        beside = {metrics.score_of(name, figure) for name in READINGS for figure in ("accuracy", "loss")}
        for key in (metrics.TEST_ACCURACY, metrics.TEST_LOSS, *sorted(beside)):
            values = [[row[key] for row in rows if key in row] for rows in (one, two[reading])]
            assert values[0] == pytest.approx(values[1], abs=1e-12)
            assert len(values[0]) == (0 if f"/{reading}_" in key else 3)
