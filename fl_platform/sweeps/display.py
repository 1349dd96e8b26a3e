"""Shows a running sweep: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any

from fl_platform.errors import sentence, visible
from fl_platform.runs import metrics
from fl_platform.sweeps.status import Status, is_number
from fl_platform.sweeps.trials import Trial

SECONDS_BETWEEN_LINES = 30


class Display:
    """Messages as they come, and the state of the sweep every so often."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._stream = sys.stderr  # a trial in the launcher's process writes to its log instead

    def say(self, message: str) -> None:
        """Show a message, without control characters of what it quotes."""
        print(sentence(message), file=self._stream, flush=True)

    def update(self, status: Status, running: list[tuple[Trial, dict[str, Any]]]) -> None:
        """Show the status and, on a terminal, the newest row of every running trial."""
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self.say(status.line())

    def close(self) -> None:
        """Nothing to do for plain lines."""


class LiveDisplay(Display):
    """Per running trial its round and accuracy; one bar for the sweep."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._live = Live(console=Console(file=self._stream), auto_refresh=False)
        self._live.start()

    def say(self, message: str) -> None:
        self._live.console.print(sentence(message), markup=False, highlight=False)

    def update(self, status: Status, running: list[tuple[Trial, dict[str, Any]]]) -> None:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table("trial", "run", "round", "accuracy", "best", "point", box=None)
        for trial, row in running:
            values = [row.get(key) for key in (metrics.TEST_ACCURACY, metrics.TOP_ACCURACY)]
            numbers = [f"{value:.4f}" if is_number(value) else "" for value in values]
            rounds = f"{row.get(metrics.ROUND, 0)}/{trial.spec.config.num_rounds}"
            table.add_row(
                str(trial.number),
                trial.spec.run_id,
                rounds,
                *numbers,
                Text(visible(trial.label), overflow="ellipsis", no_wrap=True),
            )
        bar = ProgressBar(total=max(1, status.total), completed=status.done, width=60)
        whole = Table.grid()
        for part in (table, bar, Text(status.line())):
            whole.add_row(part)
        self._live.update(whole, refresh=True)

    def close(self) -> None:
        self._live.stop()


def make_display() -> Display:
    """The display that fits standard error."""
    return LiveDisplay() if sys.stderr.isatty() else Display()
