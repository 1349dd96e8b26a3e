"""The states a trial has in the ledger of its sweep."""

from enum import StrEnum

from fl_platform.runs.status import STOPPED, RunStatus


class TrialState(StrEnum):
    """The kind of a trial's newest event; the values are those in the ledger."""

    PROPOSED = "proposed"
    STARTED = "started"
    FINISHED = RunStatus.FINISHED.value
    DIVERGED = RunStatus.DIVERGED.value
    INTERRUPTED = RunStatus.INTERRUPTED.value
    STOPPED = STOPPED  # given up by hyperband
    FAILED = "failed"
    SHARED = "shared"  # another trial of the sweep has the same run id

    @property
    def is_done(self) -> bool:
        """Whether the trial's run was carried out and will not be started again."""
        return self in (TrialState.FINISHED, TrialState.DIVERGED, TrialState.STOPPED)

    @property
    def run_status(self) -> RunStatus:
        """How the run of such a trial stands, as far as the ledger knows."""
        named = {
            TrialState.STARTED: RunStatus.RUNNING,
            TrialState.FAILED: RunStatus.CRASHED,
            TrialState.STOPPED: RunStatus.INTERRUPTED,
        }
        return named.get(self) or RunStatus.parse(self.value) or RunStatus.RUNNING


CLOSED = (
    TrialState.FINISHED,
    TrialState.DIVERGED,
    TrialState.STOPPED,
    TrialState.FAILED,
    TrialState.SHARED,
)
"""The states in which a trial counts as done, in the order of a status line."""
