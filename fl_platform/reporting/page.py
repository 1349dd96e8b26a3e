"""A report as one HTML file with tables, charts, figures and configurations, to open anywhere without a network."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fl_platform.errors import visible
from fl_platform.reporting.layout import Table
from fl_platform.reporting.lines import Chart, make_lines
from fl_platform.reporting.report import Report
from fl_platform.reporting.shown import OWN_COLUMNS, ShownRun, differing_settings, relabelled, row, shown, table_values
from fl_platform.reporting.styles import distinct
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs
from fl_platform.runs.record import RunRecord
from fl_platform.runs.status import RunStatus
from fl_platform.runs.writing import write_atomically

FILE = "report.html"
_STATIC = Path(__file__).resolve().parents[1] / "dashboard" / "static"
_STYLES = ("uplot.min.css", "style.css")
_MODULES = ("dom.js", "format.js", "theme.js", "chart_files.js", "chart.js", "report_table.js", "table.js", "page.js")
_IMPORT = re.compile(r"^import .* from \"\./\w+\.js\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_METRICS = {
    metrics.TEST_ACCURACY: "Test accuracy",
    metrics.FORGETTING: "Forgetting",
    metrics.TRAIN_LOSS: "Training loss",
}
_POINTS = 160

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="page" class="page"></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def write_page(report: Report, tables: Sequence[Table], runs: Runs, logs: Sequence[RunRecord], out: Path) -> Path:
    """`report.html` beside the report's other files, with the tables and pictures that ``build`` made."""
    kept = set(report.selected(runs).runs["run_id"])
    pictures = {item.title or item.name: out / f"{item.name}.png" for item in report.figures}
    path = out / FILE
    page = make_page(report.title, tables, [log for log in logs if log.run_id in kept], pictures)
    write_atomically(path, page)
    return path


def make_page(
    title: str, tables: Sequence[Table], logs: Sequence[RunRecord], pictures: dict[str, Path] | None = None
) -> str:
    """The page's text; it holds all it shows, and a policy that lets nothing else run."""
    by_id = {log.run_id: shown(log) for log in logs}
    runs = list((by_id | relabelled(by_id)).values())
    common, own = split_configs(runs)
    data = {
        "title": visible(title),
        "tables": [table_values(table) for table in tables],
        "panels": _panels(runs),
        "pictures": [[visible(name), _inline(path)] for name, path in (pictures or {}).items()],
        "runs": [row(run) for run in runs],
        "common": common,
        "configs": own,
        "settings": [key for key in differing_settings(runs) if key not in OWN_COLUMNS],
    }
    style = "\n".join(_asset(name) for name in _STYLES)
    script = "\n".join([_asset("uplot.min.js"), *map(_inline_module, _MODULES)])
    policy = (
        f"default-src 'none'; img-src data:; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html.escape(visible(title)),
        style=style,
        script=script,
        data=json_in_html(data),
    )


def json_in_html(values: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def split_configs(runs: Sequence[ShownRun]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """(what all runs share, what each has of its own): a thousand whole configurations would be most of the file."""
    common = dict(runs[0].config) if runs else {}
    for run in runs[1:]:
        common = {name: text for name, text in common.items() if run.config.get(name) == text}
    own = {
        visible(run.log.run_id): {name: text for name, text in run.config.items() if name not in common} for run in runs
    }
    return common, own


def _panels(runs: Sequence[ShownRun]) -> list[dict[str, Any]]:
    """For each metric a chart per scenario, of the runs that tables average."""
    scenarios: dict[str, list[ShownRun]] = {}
    for run in (run for run in runs if run.log.status is RunStatus.FINISHED):
        scenarios.setdefault(run.scenario, []).append(run)
    methods = distinct(run.method for run in runs)
    panels: list[dict[str, Any]] = []
    for metric, label in _METRICS.items():
        chart = Chart(metric, by=("algorithm",), points=_POINTS)
        charts = [(scenario, make_lines(members, chart, methods)) for scenario, members in sorted(scenarios.items())]
        if any(lines["lines"] for _, lines in charts):
            panels.append({"metric": metric, "label": label, "charts": charts})
    return panels


def _asset(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _inline_module(name: str) -> str:
    """A module of the dashboard as part of one script: what it imports stands before it, names are unique."""
    return _EXPORT.sub("", _IMPORT.sub("", _asset(name)))


def _digest(text: str) -> str:
    """The hash by which a policy knows an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _inline(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
