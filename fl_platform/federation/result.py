"""What a run leaves to the one who started it: summary, rounds and the trained model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl_platform.federation.trained import Which, load_model
from fl_platform.runs import metrics
from fl_platform.runs.status import RunStatus

if TYPE_CHECKING:
    import pandas as pd

    from fl_platform.models.classifier import Classifier


SHOWN = {
    *("run", metrics.ROUNDS, metrics.TOP_ACCURACY, metrics.TOP_ACCURACY_ROUND),
    *(metrics.FINAL_ACCURACY, metrics.FINGERPRINT),
}
"""Keys of a summary that the last line of a run shows."""


@dataclass(frozen=True, repr=False)
class Result:
    """How a run ended.

    ``summary`` is what `result.json` holds, ``directory`` the run's own (``<output.dir>/<run id>``; a ``Result`` can
    be given wherever a path to runs is expected). ``wandb_directory`` is None without tracking and ``wandb_url`` is
    None unless the run was tracked online.
    """

    summary: dict[str, Any]
    directory: Path
    wandb_directory: Path | None = None
    wandb_url: str | None = None
    attempt: Path | None = None
    """Where this run wrote; None for a result that was stored earlier."""
    history: Sequence[dict[str, Any]] = ()
    """The logged rows; empty for a result that was stored earlier, whose rows are read when they are asked for."""

    def __repr__(self) -> str:
        rounds = self.summary[metrics.ROUNDS]
        parts = [
            f"{self.status} in round {rounds}"
            if self.status is RunStatus.DIVERGED
            else f"{self.status}, {rounds} rounds"
        ]
        if self.summary[metrics.TOP_ACCURACY] is not None:
            round = self.summary[metrics.TOP_ACCURACY_ROUND]
            parts.append(f"top accuracy {self.summary[metrics.TOP_ACCURACY]:.4f} in round {round}")
        return f"<Result: {', '.join(parts)}; {self.directory}>"

    def __fspath__(self) -> str:
        return str(self.directory)

    @property
    def run_id(self) -> str:
        return str(self.summary["run"])

    @property
    def exit_code(self) -> int:
        return self.status.exit_code

    @property
    def status(self) -> RunStatus:
        return RunStatus(self.summary[metrics.STATUS])

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row per round: ``round`` and every logged metric; NaN where a round has none, such as between
        evaluations."""
        import pandas as pd

        from fl_platform.runs.frames import to_frames
        from fl_platform.runs.reader import read_directory

        if self.history:
            return pd.DataFrame(list(self.history))
        return to_frames([read_directory(self.directory)]).rounds.drop(columns="run_id")

    def model(self, which: Which = "last") -> "Classifier":
        """Return the trained model in evaluation mode, with the normalisation of its data set.

        It takes raw features [B, ...]; images are uint8 in 0..255, or floating point in [0, 1]. "last" is the model of
        the last round; "best" the one with the highest test (or validation) accuracy, which a run with
        ``checkpoint.keep_best=true`` keeps. Raises UserError where the model was not kept.
        """
        return load_model(self.directory, which, attempt=self.attempt)

    def last_line(self) -> str:
        """Machine-readable: ``done run=... rounds=... top_accuracy=...``; the first word says how it ended."""
        word = "done" if self.status is RunStatus.FINISHED else self.status
        top, final = (
            "nan" if self.summary[key] is None else f"{self.summary[key]:.6f}"
            for key in (metrics.TOP_ACCURACY, metrics.FINAL_ACCURACY)
        )
        return (
            f"{word} run={self.summary['run']} rounds={self.summary[metrics.ROUNDS]}"
            f" top_accuracy={top} at_round={self.summary[metrics.TOP_ACCURACY_ROUND]}"
            f" final_accuracy={final} fingerprint={self.summary[metrics.FINGERPRINT]}"
        )
