"""Sweeps whose trials and launchers are killed: every trial has one result, none is done twice, none is lost."""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.errors import UserError
from fl_platform.sweeps.definition import find_sweep
from fl_platform.sweeps.ledger import Ledger
from tests.sweeps.small_sweeps import entries_of
from tests.torture import forked
from tests.torture.exactly_once import check_exactly_once, events, make, rounds_of
from tests.torture.witness import check_published_once

Scale = Callable[[int, int], int]
Record = Callable[[str, object], None]

PLACES = ("claim", "record", "local steps", "checkpoint", "result")


# --- launchers with trials inside them ---


@pytest.mark.parametrize("launchers", [1, 2])
def test_killed_launchers_lose_nothing_and_repeat_nothing(
    launchers: int, tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """`sweep run --in-process`: a kill takes the launcher and the trial it is at."""
    if launchers == 1 and scale(0, 1) == 0:
        pytest.skip("two launchers are enough of a sample: one alone only with --torture")
    trials, wanted = scale(4, 100), scale(2, 30)
    sweep, args = make(tmp_path, trials)
    witness = f"from pathlib import Path; from tests.torture.witness import watch; watch(Path({str(tmp_path)!r}))\n"
    rng, kills = random.Random(f"sweep {launchers}"), Counter[str]()
    while True:
        children = []
        for number in range(launchers):
            place = rng.choice((*PLACES, "by a timer"))
            before = witness
            if kills.total() < wanted and place in PLACES:
                entry, event = rng.randint(1, 8), round(300 ** rng.random())
                before += f"from tests.torture.kill_points import arm; arm({place!r}, {entry}, {event})"
            children.append((place, forked.start([*args, "--in-process"], tmp_path / f"launcher{number}", before)))
        if kills.total() < wanted and any(place not in PLACES for place, _ in children):
            time.sleep(rng.uniform(0.5, 3))
            for _, child in (found for found in children if found[0] not in PLACES):
                child.send()
        ended = [(place, child.wait()) for place, child in children]
        kills.update(place for place, end in ended if end.was_killed)
        assert all(end.was_killed or end.code == 0 for _, end in ended), ended
        if any(end.code == 0 for _, end in ended):
            break
    entries = check_exactly_once(sweep, trials)
    check_published_once(tmp_path, {entry.run_id or "" for entry in entries})
    for entry in rng.sample(entries, 1):
        args = ["run", *sweep.overrides, f"seed={entry.params['seed']}", f"output.dir={tmp_path / 'alone'}"]
        assert entry.summary["fingerprint"] in forked.run(args, tmp_path / "alone").out
    where = ", ".join(f"{count} {place}" for place, count in sorted(kills.items()))
    record_property(
        f"results of a sweep of {trials} trials, {launchers} launcher(s) at once, {kills.total()} kills ({where})",
        len(entries),
    )


def test_ctrl_c_on_a_launcher_once_and_twice(tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("three launches: only with --torture")
    sweep, args = make(tmp_path, 3, "num_rounds=60")
    for signals in (1, 2):
        rounds = rounds_of(sweep)
        child = forked.start([*args, "--in-process"], tmp_path)
        wait_for(lambda rounds=rounds: rounds_of(sweep) > rounds + 3, child)
        for _ in range(signals):
            child.send(signal.SIGINT)
            time.sleep(0.01)
        ended = child.wait()
        assert ended.code == 130, ended
        assert "Traceback" not in ended.err
        assert {entry.state for entry in entries_of(sweep)} <= {"finished", "interrupted", "proposed"}
    assert forked.run([*args, "--in-process"], tmp_path).code == 0
    check_exactly_once(sweep, 3)


def wait_for(condition: Callable[[], bool], child: forked.Child) -> None:
    while not condition():
        assert not child.is_over()
        time.sleep(0.02)


def test_a_trial_that_waits_for_its_retry_is_left_and_not_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, _ = make(tmp_path, 2)
    with Ledger(sweep.directory) as ledger:
        sweep.write_copy(sweep.directory)
        ledger.propose([{"seed": 0}, {"seed": 1}])
        ledger.record(None, "retries", data={"retries": 2})
        for _ in range(2):
            entry = ledger.claim(2, 9, lambda entry: f"run{entry.number}")
            assert entry is not None
            ledger.record(0, "failed", run_id="run0", attempt=entry.attempt, data={"message": "broke"})
    assert main(["sweep", "status", str(sweep.directory)]) == 0
    told = capsys.readouterr().out
    assert "0/2 done, 0 running, 2 left" in told
    assert "failed" not in told


# --- the ledger's bytes ---


def test_a_ledger_cut_at_any_byte_keeps_what_was_complete_before_it(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """The write-ahead log as a crash of the machine may leave it: a prefix of the events, longer with every byte."""
    ledger = Ledger(tmp_path / "whole")
    ledger.propose([{"seed": number} for number in range(5)])
    for number in range(5):
        ledger.record(number, "finished", run_id=f"run{number}")
    written = events(tmp_path / "whole")
    log = (tmp_path / "whole" / "ledger.sqlite-wal").read_bytes()
    rng, kept = random.Random(0), []
    cuts = sorted({0, len(log), *(rng.randrange(len(log)) for _ in range(scale(20, 500)))})
    for cut in cuts:
        place = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", place)
        (place / "ledger.sqlite-shm").unlink()
        (place / "ledger.sqlite-wal").write_bytes(log[:cut])
        with Ledger(place) as again:
            found = events(place)
            assert found == written[: len(found)]
            kept.append(len(found))
            again.propose([{"seed": number} for number in range(5)])  # and it goes on
            assert again.count() == 5
        shutil.rmtree(place)
    ledger.close()
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (0, len(written))
    record_property("cuts of a ledger's log that lost nothing before the cut", len(cuts))


def test_a_sweep_directory_is_found_by_its_last_file(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, 1)
    sweep.write_copy(sweep.directory)
    assert find_sweep(sweep.directory)[0].overrides == sweep.overrides
    (sweep.directory / "overrides.json").unlink()  # as after a kill in between
    with pytest.raises(UserError, match="is not a sweep directory"):
        find_sweep(sweep.directory)
    sweep.write_copy(sweep.directory)
    assert find_sweep(sweep.directory)[0].overrides == sweep.overrides
