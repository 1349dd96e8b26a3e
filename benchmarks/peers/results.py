"""The numbers of the peers as a table: for people, for programs, and kept in benchmarks/README.md."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from benchmarks.peers.turns import Measured
from fl_platform.errors import UserError

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
HEADINGS = ("program", "rounds/s", "CPU-ms per round", "against fl_platform", "peak MB", "accuracy", "versions")


def rows(measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    """A row per peer that ran; the ratio is of CPU time per round."""
    ours = next((one.cpu_seconds for one in measured if one.peer.name == "fl_platform" and not one.failure), None)
    return [
        (
            one.peer.label,
            f"{1 / one.seconds:.2f}",
            f"{1000 * one.cpu_seconds:.0f}",
            "-" if ours is None else f"{one.cpu_seconds / ours:.2f} x",
            f"{one.megabytes:.0f}",
            f"{one.accuracy:.3f}",
            ", ".join(f"{name} {version}" for name, version in one.versions.items()),
        )
        for one in measured
        if one.failure is None
    ]


def failures(measured: Sequence[Measured]) -> list[str]:
    """A line for each peer without numbers."""
    return [f"{one.peer.label}: no numbers, {one.failure}" for one in measured if one.failure is not None]


def as_text(found: Mapping[str, Sequence[Measured]]) -> str:
    lines: list[str] = []
    for workload, measured in found.items():
        table = [HEADINGS, *rows(measured)]
        widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
        lines += [f"{workload}:"]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        lines += [*failures(measured), ""]
    return "\n".join(lines).rstrip()


def as_markdown(found: Mapping[str, Sequence[Measured]], machine: Mapping[str, str], how: str) -> str:
    lines = [f"{date.today():%d %B %Y}; {how}; " + "; ".join(f"{key} {value}" for key, value in machine.items()) + "."]
    for workload, measured in found.items():
        lines += ["", f"**{workload.upper()}**", "", line(HEADINGS), line(("---",) * len(HEADINGS))]
        lines += [line(row) for row in rows(measured)]
        lines += [f"\n{failure}." for failure in failures(measured)]
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_records(found: Mapping[str, Sequence[Measured]]) -> list[dict[str, object]]:
    """For JSON: one record per workload and peer."""
    return [
        {
            "workload": workload,
            "peer": one.peer.name,
            "rounds_per_second": None if one.failure else 1 / one.seconds,
            "cpu_ms_per_round": None if one.failure else 1000 * one.cpu_seconds,
            "peak_megabytes": None if one.failure else one.megabytes,
            "accuracy": None if one.failure else one.accuracy,
            "versions": dict(one.versions),
            "failure": one.failure,
        }
        for workload, measured in found.items()
        for one in measured
    ]


def refresh(readme: Path, text: str) -> None:
    """Put the tables between the two marks of a Markdown file."""
    try:
        before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
    except OSError as error:
        raise UserError(f"{readme} cannot be read: {error.strerror}; --write needs a checkout") from None
    except ValueError:
        raise UserError(f"{readme} has no '{BEGIN}' and '{END}' to write between") from None
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
