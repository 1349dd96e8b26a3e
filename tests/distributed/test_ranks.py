"""Two processes of real torch.distributed (gloo) give what one process gives."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fl_platform.engines.ranks import Ranks
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from tests.distributed.two_ranks import ARGUMENTS, SHARED, results
from tests.federations import make_config, train


def test_shares_cover_everything_once():
    for size in (1, 2, 3, 7):
        for count in (0, 1, 5, 50):
            shares = [range(count)[Ranks(rank, size).share(count)] for rank in range(size)]
            assert [row for share in shares for row in share] == list(range(count))


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
