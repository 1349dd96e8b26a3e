"""How a run stands, and what follows from it."""

from enum import StrEnum

STOPPED = "stopped"
"""What sweeps and tables call a run that was given up before its last round."""


class RunStatus(StrEnum):
    """How a run stands; the values are those of `result.json`, of W&B summaries and of archives."""

    RUNNING = "running"
    FINISHED = "finished"
    DIVERGED = "diverged"
    INTERRUPTED = "interrupted"  # stopped after a whole round, with a checkpoint to go on from
    CRASHED = "crashed"

    @property
    def has_ended(self) -> bool:
        """Whether the run came to its end and left a result; the others can be continued."""
        return self in ENDED

    @property
    def exit_code(self) -> int:
        """The exit code of `run` for a run that ended like this; KeyError while it is running."""
        return _EXIT_CODES[self]

    @classmethod
    def of_exit_code(cls, code: int) -> "RunStatus":
        """How a process of `run` that exited with this code ended; a signal is a crash."""
        return next((status for status, own in _EXIT_CODES.items() if own == code), cls.CRASHED)

    @classmethod
    def parse(cls, value: object) -> "RunStatus | None":
        """The status that a file names, or None where it names none."""
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            return None


class Ending(StrEnum):
    """How a run ended, or that it has not: the one set of words that commands, dashboard, tables and W&B show.

    The first five are those of ``RunStatus``; the others are ways to crash. Files have them under ``ending``.
    """

    RUNNING = RunStatus.RUNNING.value
    FINISHED = RunStatus.FINISHED.value
    DIVERGED = RunStatus.DIVERGED.value
    INTERRUPTED = RunStatus.INTERRUPTED.value
    CRASHED = RunStatus.CRASHED.value  # by an error of the platform, or for a reason that is not known
    USER_CODE = "user code failed"  # a plugin, model, data set or callback of the user's
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    KILLED = "killed"  # its process ended without a word
    LOST = "lost node"  # on another host, and silent for long

    @property
    def status(self) -> RunStatus:
        """The status of a run that ended like this."""
        return RunStatus.parse(self.value) or RunStatus.CRASHED

    @property
    def explanation(self) -> str:
        """What the word means, as the rest of a sentence."""
        return _EXPLANATIONS[self]

    @classmethod
    def parse(cls, value: object) -> "Ending | None":
        """The ending that a file names, or None where it names none."""
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            return None

    @classmethod
    def of(cls, status: RunStatus | None, noted: object = None) -> "Ending":
        """The ending of a run with this status, of which a file says ``noted``; only a crash has several."""
        found = cls.parse(noted)
        if found is not None and found.status is (status or RunStatus.CRASHED):
            return found
        return cls((status or RunStatus.CRASHED).value)


_EXPLANATIONS = {
    Ending.RUNNING: "a process is at work on it",
    Ending.FINISHED: "all rounds are done",
    Ending.DIVERGED: "a value was not finite",
    Ending.INTERRUPTED: "it was stopped, and what was saved stays",
    Ending.CRASHED: "an error of the platform ended it, or nobody knows what",
    Ending.USER_CODE: "a plugin, model, data set or callback of yours raised or returned what it may not",
    Ending.OUT_OF_MEMORY: "the memory did not suffice; a smaller batch_size or cohort_chunk needs less",
    Ending.DISK_FULL: "no space was left where it writes",
    Ending.KILLED: "its process was killed, or the machine went down",
    Ending.LOST: "its process was on another host and has long been silent",
}
ENDED = (RunStatus.FINISHED, RunStatus.DIVERGED)
_EXIT_CODES = {RunStatus.FINISHED: 0, RunStatus.CRASHED: 1, RunStatus.DIVERGED: 3, RunStatus.INTERRUPTED: 130}
