"""Trials on a real Ray cluster of two nodes, one of which is lost on the way."""

import socket
import sys
import threading
import time
from pathlib import Path

import pytest
from small_sweeps import entries_of, quick_sweep

from fl_platform.errors import UserError
from fl_platform.runs import metrics
from fl_platform.sweeps import ray_pool
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.display import Display
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Ledger

ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
from ray.cluster_utils import Cluster  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own: deprecations and sockets it leaves to the collector


def rounds_of(sweep: Sweep) -> dict[int, int]:
    """Rounds each started trial has on disk."""
    found = {}
    for entry in entries_of(sweep):
        rows = list((sweep.output / (entry.run_id or "-")).glob("attempts/*/rounds.jsonl"))
        found[entry.number] = max((row.read_text(encoding="utf-8").count("\n") for row in rows), default=0)
    return found


GATE = """
import time
from pathlib import Path

from lightning.pytorch import Callback


class Gate(Callback):
    def on_train_epoch_start(self, trainer, module):
        while trainer.current_epoch == 30 and not Path(__file__).with_name("open").exists():
            time.sleep(0.05)
"""
"""A callback whose runs wait before their 31st round until a file lies beside it: none ends before its node is lost."""


def test_losing_nodes_fails_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial of a lost node goes on elsewhere; where the launcher's own node is lost, every trial stays open."""
    monkeypatch.chdir(tmp_path)  # where trials find the callback
    (tmp_path / "ray_gate.py").write_text(GATE, encoding="utf-8")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lose_another_node(cluster, tmp_path / "another")
        lose_own_node(cluster, tmp_path / "own")
    finally:
        ray.shutdown()
        cluster.shutdown()


def lose_another_node(cluster: Cluster, output: Path) -> None:
    """Each node has room for one trial. When both trials are at the gate the second node is killed."""
    args = ("num_rounds=120", "checkpoint.every=10", "callbacks=[ray_gate.Gate]")
    output.mkdir()
    sweep = quick_sweep(output, {"seed": {"values": [0, 1]}}, *args)
    lost = cluster.add_node(num_cpus=1)
    over = threading.Event()

    def lose_a_node() -> None:
        while not over.wait(0.05):
            if len(rounds := rounds_of(sweep)) == 2 and min(rounds.values()) == 30:
                cluster.remove_node(lost, allow_graceful=False)
                Path("open").touch()
                return

    with Ledger(sweep.directory) as ledger:
        ledger.launch([])
        pool = ray_pool.RayPool(cluster.address, 1.0, 0.0, None)
        assert pool.capacity() == 2
        killer = threading.Thread(target=lose_a_node)
        killer.start()
        try:
            launcher = Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=1, cap=None)
            status = launcher.run()
        finally:
            over.set()
            killer.join()
            pool.close()
    entries = entries_of(sweep)
    assert status.counts["finished"] == 2
    assert sorted(entry.attempt for entry in entries) == [1, 2]
    assert [entry.failures for entry in entries] == [0, 0]  # losing a node is no failure of the trial
    for entry in entries:
        assert entry.summary[metrics.ROUNDS] == 120
        assert len(list((sweep.output / (entry.run_id or "-") / "attempts").iterdir())) == 1  # continued, not restarted


def lose_own_node(cluster: Cluster, output: Path) -> None:
    """The trials that ran and those that never began stay open, and the launcher says what is gone."""
    output.mkdir()
    sweep = quick_sweep(output, {"seed": {"values": [0, 1, 2]}}, "num_rounds=2000")
    with Ledger(sweep.directory) as ledger:
        ledger.launch([])
        pool = ray_pool.RayPool(cluster.address, 1.0, 0.0, 2)

        def lose_the_node() -> None:
            while not any(rounds_of(sweep).values()):
                time.sleep(0.1)
            cluster.head_node.kill_raylet(check_alive=False)

        killer = threading.Thread(target=lose_the_node)
        killer.start()
        with pytest.raises(UserError, match="the Ray process of this machine is gone"):
            Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=0, cap=None).run()
        killer.join()
    assert {entry.failures for entry in entries_of(sweep)} == {0}
    assert {entry.state.value for entry in entries_of(sweep)} <= {"proposed", "interrupted"}


def test_an_address_at_which_nobody_listens_is_refused_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that nobody else listens there either
        port = taken.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}", "127.0.0.1:99999"):
            with pytest.raises(UserError, match=f"--address {address}: no Ray cluster answers there"):
                ray_pool.check_listens(address)
        taken.listen()
        ray_pool.check_listens(f"127.0.0.1:{port}")


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="--engine ray needs Ray, which is not installed; `pip install ray`"):
        ray_pool.import_ray()
