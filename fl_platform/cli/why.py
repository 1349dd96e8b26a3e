"""``why``: how a run stands or how it ended, with the last lines of its log or of the error that ended it."""

from collections.abc import Iterator
from pathlib import Path

from fl_platform.cli.parser import Parser
from fl_platform.config.regular_files import open_regular
from fl_platform.errors import UserError, sentence, visible
from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.liveness import error_file
from fl_platform.runs.reader import read_directory
from fl_platform.runs.record import RunRecord
from fl_platform.runs.sources import discover
from fl_platform.runs.status import RunStatus

NEXT_STEPS = {
    RunStatus.CRASHED: "the same `run` with --continue goes on from the newest checkpoint",
    RunStatus.INTERRUPTED: "the same `run` with --continue goes on from the newest checkpoint",
    RunStatus.DIVERGED: "a smaller local_lr or server_lr may help",
}
LOG_BYTES = 32_768


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(prog="fl_platform why", description="How a run stands or ended, and the end of its log.")
    parser.add_argument("run", metavar="RUN", help="a run id, or the directory of a run")
    parser.add_argument("--dir", type=Path, default=Path("runs"), help="output.dir of the run (default: runs)")
    parser.add_argument("--lines", type=int, default=20, help="how many lines of the log (default: 20)")
    options = parser.parse_args(args)
    output, path = place_of(options.run, options.dir)
    record = read_directory(path)
    for line in explanation(record):
        print(sentence(line))
    attempt = RunDirectory(path.parent, path.name).newest_attempt()
    for log in logs_of(output, path.name) or [file for file in [attempt and error_file(attempt)] if file]:
        print(f"the end of {log}:")
        for line in last_lines(log, max(0, options.lines)):
            print(f"  {visible(line)}")
    return 0


def place_of(run: str, output: Path) -> tuple[Path, Path]:
    """(output.dir, directory) of a run that is given by its id or its directory; UserError where there is none."""
    for path in (output / run, Path(run)):
        if (path / "attempts").is_dir():
            return path.resolve().parent, path
    raise UserError(f"{run} is neither a run below {output} nor the directory of one; --dir gives another output.dir")


def explanation(record: RunRecord) -> Iterator[str]:
    """What is known of how a run stands, a sentence a line."""
    ending, of = record.ending, record.config.get("num_rounds")
    place = f" in round {record.summary[metrics.DIVERGED_ROUND]}" if metrics.DIVERGED_ROUND in record.summary else ""
    yield f"run {record.run_id} {ending}{place}; {record.history.num_rows}{f' of {of}' if of else ''} rounds on disk"
    yield f"{ending}: {ending.explanation}"
    if ending.status in NEXT_STEPS:
        yield NEXT_STEPS[ending.status]
    yield from record.warnings


def logs_of(output: Path, run_id: str) -> list[Path]:
    """What the run printed as a trial of the sweeps below its output.dir; the newest last."""
    found = [log for sweep in discover(output).sweeps for log in sweep.glob(f"logs/*-{run_id}.log")]
    return sorted(found, key=lambda log: log.stat().st_mtime)


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log, where a progress bar's returns end lines."""
    with open_regular(log) as file:
        file.seek(max(0, file.seek(0, 2) - LOG_BYTES))
        lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    kept = [line for line in lines if line.strip()]
    return kept[len(kept) - min(count, len(kept)) :]
