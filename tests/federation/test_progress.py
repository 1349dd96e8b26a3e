"""What a person sees and does while a run goes on."""

import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios

import lightning as L
import pytest
import torch

from fl_platform.federation import progress
from fl_platform.federation.build import make_algorithm
from fl_platform.federation.checkpoints import AtomicCheckpointIO
from fl_platform.federation.progress import GracefulStop, RoundProgress, RowFile
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from fl_platform.runs.signals import ending_signals
from tests.federations import make_config, make_module, train


def fit_with_progress(config):
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=config.num_rounds,
        logger=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        callbacks=[make_algorithm(config), RoundProgress("fedavg on noise")],
        plugins=[AtomicCheckpointIO()],
    )
    trainer.fit(make_module(config))


def test_elsewhere_than_on_a_terminal_progress_is_lines(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    fit_with_progress(make_config("num_rounds=3"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("fedavg on noise: round 2/3, accuracy 0.")
    assert lines[1].endswith(" s left")
    assert lines[2].endswith(", 0 s left")


def test_lines_come_seldom(capsys):
    fit_with_progress(make_config("num_rounds=3"))
    assert capsys.readouterr().err == ""


def read_all(master):
    """What was written to a terminal whose other end is closed."""
    parts = []
    while True:
        try:
            parts.append(os.read(master, 4096))
        except OSError:  # EIO: nothing is left
            os.close(master)
            return b"".join(parts).decode()


def test_on_a_terminal_progress_is_a_bar(monkeypatch):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 120, 0, 0))
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        fit_with_progress(make_config("num_rounds=3"))
    drawn = read_all(master)
    assert "\r" in drawn
    assert "fedavg on noise: 100%" in drawn
    assert "3/3" in drawn
    assert "best 0." in drawn


class Signals(L.Callback):
    """Sends itself signals in the middle of a round."""

    def __init__(self, round, numbers):
        self.round, self.numbers = round, numbers

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.current_epoch + 1 == self.round:
            for number in self.numbers:
                os.kill(os.getpid(), number)


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP, signal.SIGHUP]])
def test_the_first_signal_ends_the_run_after_its_round_and_resuming_gives_equal_bits(numbers, tmp_path, capsys):
    """Of a terminal that is closed, the shell and the system may both send SIGHUP."""
    earlier = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored below nohup
    config = make_config("num_rounds=5", "algorithm.name=mifam")
    before = [signal.getsignal(handled) for handled in ending_signals()]
    stop = GracefulStop()
    done = train(config, callbacks=(stop, Signals(2, numbers)), checkpoints=tmp_path, every=0)
    assert stop.requested
    assert len(done.module.history) == 2
    assert "finishing this round and saving; once more stops at once" in capsys.readouterr().err
    assert before == [signal.getsignal(handled) for handled in ending_signals()]
    signal.signal(signal.SIGHUP, earlier)
    [(round, newest)] = sorted_checkpoints(tmp_path)
    assert round == 2
    assert torch.equal(train(config, resume=newest).params, train(config).params)


def test_the_second_signal_ends_it_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit):  # how Lightning passes a KeyboardInterrupt on
        train(make_config("num_rounds=5"), callbacks=(GracefulStop(), Signals(2, [signal.SIGINT, signal.SIGINT])))
    signal.signal(signal.SIGINT, before)


def rows_of(path):
    return [json.loads(line, parse_constant=lambda word: pytest.fail(word)) for line in path.read_text().splitlines()]


def test_every_round_is_on_disk_at_once_and_once_after_a_resume(tmp_path):
    path = tmp_path / "rounds.jsonl"
    seen = []

    class Reader(L.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            seen.append(len(rows_of(path)))

    config = make_config("num_rounds=4")
    checkpoints = tmp_path / "checkpoints"
    whole = train(config, callbacks=(RowFile(path), Reader()), checkpoints=checkpoints)
    assert seen == [1, 2, 3, 4]
    rows = rows_of(path)
    assert [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows] == whole.figures()
    [_, (round, third)] = sorted_checkpoints(checkpoints)
    assert round == 3
    train(config, callbacks=(RowFile(path),), resume=third)
    assert [row["round"] for row in rows_of(path)] == [1, 2, 3, 4]


def test_figures_that_are_not_finite_are_null_on_disk(tmp_path):
    path = tmp_path / "rounds.jsonl"
    train(make_config("local_lr=1e200", "model.norm=none"), callbacks=(RowFile(path),))
    [row] = rows_of(path)
    assert row["update/norm"] is None
