"""Import of runs from a W&B server: full history, never the sampled one."""

import calendar
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fl_platform.config.migrate import upgraded
from fl_platform.errors import UserError
from fl_platform.runs.record import RunRecord, to_column
from fl_platform.runs.status import RunStatus
from fl_platform.runs.wandb_logs import ended_status

_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_AT_WORK = (RunStatus.RUNNING, "pending")  # states of W&B; every other than these and finished is a crash


def read_project(address: str) -> Iterator[RunRecord]:
    """Yield the runs of ``entity/project`` or ``entity/project/sweep``; UserError where the server refuses."""
    parts = address.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UserError(f"wandb:{address} is not of the form wandb:entity/project or wandb:entity/project/sweep")
    import wandb  # 0.7 s, and only readers of a server need it
    from wandb.errors import CommError, UsageError

    try:
        api = wandb.Api()
        filters = {"sweep": parts[2]} if len(parts) == 3 else {}
        runs = list(api.runs("/".join(parts[:2]), filters=filters, per_page=100, lazy=False))
        for run in runs:
            yield _logged(run, address)
    except (CommError, UsageError, ValueError) as error:
        raise UserError(f"wandb:{address} cannot be read: {' '.join(str(error).split())}") from None


def _logged(run: Any, address: str) -> RunRecord:
    rows = [_flat(row) for row in run.scan_history()]
    names = sorted({name for row in rows for name in row})
    summary = _finite_names(dict(run.summary))
    exit_code = None if run.state == RunStatus.RUNNING else int(run.state != RunStatus.FINISHED)
    return RunRecord(
        source=f"wandb:{address}/{run.id}",
        run_id=run.id,
        entity=run.entity,
        project=run.project,
        name=run.name or "",
        group=run.group or "",
        sweep=run.sweep_name or "",
        tags=tuple(run.tags or ()),
        started=float(calendar.timegm(time.strptime(run.created_at[:19], "%Y-%m-%dT%H:%M:%S"))),
        exit_code=exit_code,
        config=upgraded({name: value for name, value in run.config.items() if name != "_wandb"}),
        summary=summary,
        history=pa.table({name: to_column(row.get(name) for row in rows) for name in names}),
        status=_status(run.state, summary),
    )


def _status(state: str, summary: dict[str, Any]) -> RunStatus:
    if state in _AT_WORK:
        return RunStatus.RUNNING
    return ended_status(0, summary) if state == RunStatus.FINISHED else RunStatus.CRASHED


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by dots, as the log file has them."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = _finite_names(value)
    return flat


def _finite_names(value: Any) -> Any:
    """JSON has no NaN: a server may send its name instead."""
    if isinstance(value, dict):
        return {name: _finite_names(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite_names(inner) for inner in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
