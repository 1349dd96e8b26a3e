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
        return next((status for status in cls if status == value), None)


class CrashCause(StrEnum):
    """Why a run has crashed; the values are those of `process.json` and of summaries, under ``crash_cause``."""

    ERROR = "error"
    USER_CODE = "user_code"  # a plugin, model or callback of the user's
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    KILLED = "killed"  # its process ended without a word
    LOST = "lost"  # on another host, and silent for long

    @classmethod
    def parse(cls, value: object) -> "CrashCause | None":
        """The cause that a file names, or None where it names none."""
        return next((cause for cause in cls if cause == value), None)


ENDED = (RunStatus.FINISHED, RunStatus.DIVERGED)
_EXIT_CODES = {RunStatus.FINISHED: 0, RunStatus.CRASHED: 1, RunStatus.DIVERGED: 3, RunStatus.INTERRUPTED: 130}
