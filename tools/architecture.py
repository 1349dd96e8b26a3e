"""Draw docs/architecture.svg: the packages of fl_platform and what imports what, read from the source itself.

    python -m tools.architecture            # write the picture (part of `make docs`)

A package stands one row above the highest package it imports. An arrow is drawn only where no longer path says the
same (the transitive reduction), so the picture stays readable. Imports inside functions count.
"""

import ast
import html
import sys
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fl_platform"
PICTURE = Path("docs/architecture.svg")

_BOX_WIDTH, _BOX_HEIGHT, _GAP, _ROW = 190, 58, 22, 112
_LINE_LENGTH = 30  # characters of a description that fit a box

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


def rows(graph: Graph) -> list[list[str]]:
    """Packages by height, the lowest first."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        height[name] = 1 + max((height[below] for below in graph[name]), default=-1)
    return [
        sorted(name for name in graph if height[name] == level) for level in range(max(height.values(), default=-1) + 1)
    ]


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


def wrapped(text: str, most_lines: int = 2) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > _LINE_LENGTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines if len(lines) <= most_lines else [*lines[: most_lines - 1], lines[most_lines - 1] + " ..."]


def picture() -> str:
    """The SVG text; equal sources give equal text."""
    graph = imports_between_packages()
    levels = rows(graph)
    widest = max(map(len, levels))
    width, height = widest * (_BOX_WIDTH + _GAP) + _GAP, len(levels) * _ROW + _GAP
    place: dict[str, tuple[float, float]] = {}
    for level, names in enumerate(levels):
        left = (width - len(names) * (_BOX_WIDTH + _GAP) + _GAP) / 2
        for number, name in enumerate(names):
            place[name] = (left + number * (_BOX_WIDTH + _GAP), height - (level + 1) * _ROW + _GAP)
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
