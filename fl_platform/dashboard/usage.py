"""Charts of what a run uses of its machine: processor, memory, GPU."""

from pathlib import Path
from typing import Any

import numpy as np

from fl_platform.reporting.lines import plain, thin
from fl_platform.reporting.styles import SEQUENCE
from fl_platform.runs.resources import CPU, GPU, GPU_MEMORY, MEMORY, read

_POINTS = 600
_NAMES = {CPU: "Processor (100 is one core)", MEMORY: "Memory", GPU: "GPU (per cent)", GPU_MEMORY: "Memory of the GPU"}


def usage_charts(path: Path) -> list[dict[str, Any]]:
    """A chart for each figure in the file, over seconds; thinned to what a screen shows."""
    found = read(path)
    if not found:
        return []
    seconds = np.array(found.pop("seconds"), dtype=float)
    charts = []
    for name, values in found.items():
        figures = np.array(values, dtype=float)
        kept = thin(figures, _POINTS)
        line = {"label": _NAMES[name], "n": 1, "averages": [], "color": SEQUENCE[4], "dash": [], "width": 1.75}
        line |= {"x": plain(seconds[kept]), "mean": plain(figures[kept])}
        charts.append({"metric": f"system/{name}", "title": _NAMES[name], "lines": [line]})
    return charts
