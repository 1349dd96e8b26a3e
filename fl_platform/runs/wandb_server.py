"""Import of runs from a W&B server: full history, never the sampled one; several at a time, kept on this machine."""

import calendar
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import platformdirs
import pyarrow as pa

from fl_platform.config.migrate import upgraded
from fl_platform.errors import UserError
from fl_platform.runs import cache
from fl_platform.runs.record import RunRecord, to_column
from fl_platform.runs.status import RunStatus
from fl_platform.runs.wandb_logs import ended_status, is_media, without_media

_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_AT_WORK = (RunStatus.RUNNING, "pending")  # states of W&B; every other than these and finished is a crash
_AT_ONCE = 8
"""Runs whose rounds are asked for at the same time: most of the time is the server's and the network's."""


def read_project(address: str, cache_dir: Path | None = None) -> Iterator[RunRecord]:
    """Yield the runs of ``entity/project`` or ``entity/project/sweep``; UserError where the server refuses.

    The rounds of a run that has ended are kept in ``cache_dir``, by default below the user's cache directory, and are
    asked for again only when what the server lists about the run has changed.
    """
    parts = address.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise UserError(f"wandb:{address} is not of the form wandb:entity/project or wandb:entity/project/sweep")
    import wandb  # 0.7 s, and only readers of a server need it
    from wandb.errors import CommError, UsageError
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    try:
        api = wandb.Api()
        filters = {"sweep": parts[2]} if len(parts) == 3 else {}
        runs = list(api.runs("/".join(parts[:2]), filters=filters, per_page=100, lazy=False))
        directory = cache_dir or Path(platformdirs.user_cache_dir("fl_platform")) / "wandb"
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            yield from threads.map(lambda run: _kept(run, address, api.settings["base_url"], directory), runs)
    except (CommError, UsageError, WandbApiFailedError, ValueError) as error:
        raise UserError(f"wandb:{address} cannot be read: {' '.join(str(error).split())}") from None


def _kept(run: Any, address: str, server: str, directory: Path) -> RunRecord:
    """The record of a run, from the cache where it has ended and is listed as it was then."""
    if run.state in _AT_WORK:
        return _logged(run, address)
    listed = [server, address, run.state, run.name, run.group, run.sweep_name, run.tags, run.created_at]
    stamps = [*listed, getattr(run, "heartbeatAt", None), run.config, _finite_names(run.summary)]
    where = Path(server, run.entity, run.project, run.id)
    place, key = cache.place_of(where, directory), cache.key_of(json.dumps(stamps, sort_keys=True, default=str))
    record = cache.load(place, key)
    if record is None:
        record = _logged(run, address)
        cache.save(place, key, record)
    return record


def _logged(run: Any, address: str) -> RunRecord:
    rows = [_flat(row) for row in run.scan_history()]
    names = sorted({name for row in rows for name in row})
    summary = {name: value for name, value in _finite_names(run.summary).items() if not is_media(name)}
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
        history=without_media(pa.table({name: to_column(row.get(name) for row in rows) for name in names})),
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
    if hasattr(value, "items"):  # a dict, or W&B's own kind of one within a summary
        return {name: _finite_names(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite_names(inner) for inner in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
