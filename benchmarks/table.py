"""The figures of a benchmark: as a table for people, as JSON for programs, and kept in benchmarks/README.md."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.clock import Ratio
from fl_platform.errors import UserError

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


@dataclass(frozen=True)
class Entry:
    """One figure, what it should reach, and the lines that explain it."""

    name: str
    value: Ratio
    unit: str
    reach: str = ""  # "<= 1.3" or ">= 50"; nothing for a figure that is only reported
    why: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool | None:
        if not self.reach:
            return None
        sign, bound = self.reach.split()
        return self.value.wall <= float(bound) if sign == "<=" else self.value.wall >= float(bound)

    def record(self) -> dict[str, object]:
        value = self.value.wall if math.isfinite(self.value.wall) else None
        return {"name": self.name, "value": value, "unit": self.unit, "reach": self.reach, "ok": self.ok}

    def records(self) -> list[dict[str, object]]:
        """The figure and, where it is known, the same by CPU time, which has nothing to reach."""
        if self.value.cpu is None:
            return [self.record()]
        by_cpu = {"name": f"{self.name}_cpu_time", "value": self.value.cpu, "unit": self.unit, "reach": "", "ok": None}
        return [self.record(), by_cpu]


def number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def rows(entries: list[Entry]) -> list[tuple[str, ...]]:
    verdict = {True: "yes", False: "no", None: ""}
    return [(e.name, number(e.value.wall), number(e.value.cpu), e.unit, e.reach, verdict[e.ok]) for e in entries]


HEADINGS = ("what", "value", "by CPU time", "unit", "reach", "reached")


def as_text(entries: list[Entry]) -> str:
    """Aligned columns, then the breakdown of every figure that was not reached or has something to list."""
    lines = [HEADINGS, *rows(entries)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    for entry in entries:
        if entry.why:
            text += ["", f"{entry.name}:", *(f"  {line}" for line in entry.why)]
    return "\n".join(text)


def as_markdown(entries: list[Entry], machine: dict[str, str]) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return f"| {' | '.join(cells)} |"

    text = [f"- {key}: {value}" for key, value in machine.items()]
    text += ["", line(HEADINGS), line(("---",) * len(HEADINGS)), *(line(row) for row in rows(entries))]
    for entry in entries:
        if entry.why:
            text += ["", f"`{entry.name}`:", "", "```", *entry.why, "```"]
    return "\n".join(text)


def write_json(entries: list[Entry], path: Path) -> None:
    records = [record for entry in entries for record in entry.records()]
    try:
        path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--json {path} cannot be written: {error.strerror}") from None


def refresh(readme: Path, entries: list[Entry], machine: dict[str, str]) -> None:
    """Put the figures between the two marks of a Markdown file."""
    try:
        before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
    except OSError as error:
        raise UserError(
            f"{readme} cannot be read: {error.strerror}; --write needs a checkout of the repository"
        ) from None
    except ValueError:
        raise UserError(f"{readme} has no '{BEGIN}' and '{END}' to write between") from None
    readme.write_text(f"{before}{BEGIN}\n{as_markdown(entries, machine)}\n{END}{after}", encoding="utf-8")
