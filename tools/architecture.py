"""Draw docs/architecture.svg: the packages of fl_platform and what imports what, read from the source itself.

    python -m tools.architecture            # write the picture (part of `make docs`)

Every arrow points down, from a package to one that it imports, and a package stands as high as that allows. An arrow
is drawn only where no longer path says the same (the transitive reduction), so the picture stays readable. Imports
inside functions count.
"""

import ast
import html
import sys
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fl_platform"
PICTURE = Path("docs/architecture.svg")

_COLUMNS = (
    ("data", "qp"),
    ("models", "kernels", "algorithms", "engines", "federation"),
    ("paper", "config", "runs", "tracking", "sweeps"),
    ("reporting", "dashboard", "cli"),
)
"""Which column of the picture a package stands in, so that no arrow runs through a box."""
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _ROW = 230, 72, 50, 116
_LINE_LENGTH = 38  # characters of a description that fit a box

Graph = dict[str, set[str]]


def packages() -> list[str]:
    """The packages of fl_platform; single modules at its root are not drawn."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def imports_between_packages() -> Graph:
    """Package -> the packages its files import."""
    known = set(packages())
    graph: Graph = {name: set() for name in known}
    for source in PACKAGE.rglob("*.py"):
        package = source.relative_to(PACKAGE).parts[0]
        if package not in known:
            continue
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            parts = [module.split(".") for module in modules if module.startswith("fl_platform.")]
            graph[package] |= {names[1] for names in parts} & known - {package}
    return graph


def rows(graph: Graph) -> dict[str, int]:
    """The row of each package, 0 at the bottom: above what it imports, right below the lowest that imports it."""
    row: dict[str, int] = {}
    order = list(TopologicalSorter(graph).static_order())
    for name in order:
        row[name] = 1 + max((row[below] for below in graph[name]), default=-1)
    for name in reversed(order):
        row[name] = min((row[above] - 1 for above in graph if name in graph[above]), default=row[name])
    return row


def reduced(graph: Graph) -> Graph:
    """The same graph without arrows that a longer path implies."""
    below: Graph = {}
    for name in TopologicalSorter(graph).static_order():
        below[name] = graph[name].union(*(below[other] for other in graph[name]))
    return {
        name: {target for target in targets if not any(target in below[other] for other in targets - {target})}
        for name, targets in graph.items()
    }


def description(package: str) -> str:
    """The first sentence of the package's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def wrapped(text: str, most_lines: int = 3) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > _LINE_LENGTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines if len(lines) <= most_lines else [*lines[: most_lines - 1], lines[most_lines - 1] + " ..."]


def picture() -> str:
    """The SVG text; equal sources give equal text."""
    graph = imports_between_packages()
    row = rows(graph)
    width = len(_COLUMNS) * (_BOX_WIDTH + _GAP) + _GAP
    height = (max(row.values()) + 1) * _ROW + _GAP
    column = {name: number for number, names in enumerate(_COLUMNS) for name in names}
    place = {
        name: (_GAP + column[name] * (_BOX_WIDTH + _GAP), height - (row[name] + 1) * _ROW + _GAP / 2) for name in graph
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#6b7280"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for name, targets in sorted(reduced(graph).items()):
        for target in sorted(targets):
            x1, y1 = place[name][0] + _BOX_WIDTH / 2, place[name][1] + _BOX_HEIGHT
            x2, y2 = place[target][0] + _BOX_WIDTH / 2, place[target][1]
            bend = (y2 - y1) / 2
            parts.append(
                f'<path d="M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}" '
                'fill="none" stroke="#6b7280" stroke-width="1.2" marker-end="url(#tip)"/>'
            )
    for name, (x, y) in sorted(place.items()):
        parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" '
            'fill="#f3f6fb" stroke="#1f4e79"/>'
        )
        parts.append(
            f'<text x="{x + _BOX_WIDTH / 2:.0f}" y="{y + 18:.0f}" text-anchor="middle" font-size="14" '
            f'font-weight="bold" fill="#1f4e79">{html.escape(name)}</text>'
        )
        for number, line in enumerate(wrapped(description(name))):
            parts.append(
                f'<text x="{x + _BOX_WIDTH / 2:.0f}" y="{y + 34 + 14 * number:.0f}" text-anchor="middle" '
                f'font-size="10.5" fill="#374151">{html.escape(line)}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
