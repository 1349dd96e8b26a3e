"""A saved view and a report in a W&B project, made with `wandb-workspaces`, or their definitions as files.

The package has no public way to look at a definition without a server; ``definition`` uses its ``_to_model``.
"""

import importlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wandb
from wandb.sdk.lib.service.service_connection import WandbApiFailedError

from fl_platform.config.targets import parse_target
from fl_platform.errors import UserError, cannot_write
from fl_platform.runs import metrics

try:
    with warnings.catch_warnings():  # its models are declared the pydantic 1 way
        warnings.simplefilter("ignore")
        import requests

        # by name: what the package exports it does not declare to type checkers
        wr: Any = importlib.import_module("wandb_workspaces.reports.v2")
        ws: Any = importlib.import_module("wandb_workspaces.workspaces")
except ModuleNotFoundError as error:
    raise UserError(
        f"publish needs the package {error.name}, which is not installed; pip install 'fl_platform[reports]'"
    ) from None

GROUP = "algorithm.name"
NAME = "Algorithms by round"
_MOST_RUNS = 100


@dataclass(frozen=True)
class Plan:
    """What is to be published: ``tables`` are Markdown, ``targets`` the summary keys of rounds to a target."""

    entity: str
    project: str
    title: str
    tables: Sequence[str] = ()
    targets: Sequence[str] = ()


def curve(title: str, metric: str) -> Any:
    """A metric by round, averaged over the runs of each algorithm, with a band of one standard deviation."""
    return wr.LinePlot(
        title=title,
        x=metrics.ROUND,
        y=[metric],
        groupby=wr.Config(GROUP),
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
        max_runs_to_show=_MOST_RUNS,
    )


def bars(title: str, key: str) -> Any:
    """A measure of the summary, averaged over the runs of each algorithm."""
    return wr.BarPlot(
        title=title,
        metrics=[key],
        groupby=wr.Config(GROUP),
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
        max_runs_to_show=_MOST_RUNS,
        max_bars_to_show=30,
    )


def sections(targets: Sequence[str]) -> dict[str, list[Any]]:
    """The panels that matter, by heading."""
    return {
        "Accuracy": [
            curve("Test accuracy by round", metrics.TEST_ACCURACY),
            bars("Top test accuracy", metrics.TOP_ACCURACY),
            curve("Training loss by round", metrics.TRAIN_LOSS),
        ],
        "Rounds to the target accuracy": [bars(_target_title(key), key) for key in targets],
        "Forgetting": [curve("Forgetting by round", metrics.FORGETTING)],
        "Quadratic programs": [
            curve("Active anchors, worker QP", metrics.QP_WORKER_ACTIVE),
            curve("Norm kept by the worker QP", metrics.QP_WORKER_RATIO),
            curve("Active anchors, server QP", metrics.QP_SERVER_ACTIVE),
            curve("Norm kept by the server QP", metrics.QP_SERVER_RATIO),
            curve("KKT residual, worker QP", metrics.QP_WORKER_RESIDUAL),
            curve("KKT residual, server QP", metrics.QP_SERVER_RESIDUAL),
        ],
    }


def _target_title(key: str) -> str:
    """``to_target/0.9/rounds`` in words."""
    target = parse_target(key.split("/")[1])
    return f"Rounds to {target.value * 100:g} % accuracy" if target.metric == "accuracy" else f"Rounds to {target.text}"


def make_workspace(plan: Plan) -> Any:
    """The W&B workspace of a plan: panels by section, runs grouped."""
    panels = {name: found for name, found in sections(plan.targets).items() if found}
    return ws.Workspace(
        entity=plan.entity,
        project=plan.project,
        name=NAME,
        sections=[ws.Section(name=name, panels=found, is_open=True) for name, found in panels.items()],
        settings=ws.WorkspaceSettings(x_axis=metrics.ROUND, max_runs=_MOST_RUNS),
        runset_settings=ws.RunsetSettings(groupby=[ws.Config(GROUP)]),
    )


def make_report(plan: Plan, is_bound: bool) -> Any:
    """The report; a run set can be bound to its project only where a server knows that project."""
    runs = wr.Runset(entity=plan.entity, project=plan.project) if is_bound else wr.Runset()
    blocks: list[Any] = [wr.MarkdownBlock(text) for text in plan.tables]
    for name, panels in sections(plan.targets).items():
        if panels:
            blocks += [wr.H2(name), wr.PanelGrid(runsets=[runs], panels=panels)]
    return wr.Report(entity=plan.entity, project=plan.project, title=plan.title[:128], blocks=blocks, width="fluid")


def is_logged_in() -> bool:
    """Whether a key is configured; asks no server."""
    return bool(os.environ.get("WANDB_API_KEY") or wandb.login(prompt=False, verify=False))


def definition(plan: Plan) -> dict[str, dict[str, Any]]:
    """What would be sent, by the name of its file."""
    models = {"workspace": make_workspace(plan)._to_model(), "report": make_report(plan, is_bound=False)._to_model()}
    return {name: model.model_dump(mode="json", by_alias=True, exclude_none=True) for name, model in models.items()}


def save_definition(plan: Plan, directory: Path) -> list[Path]:
    """Write the definition of a workspace as JSON files; returns them. UserError where that fails."""
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in definition(plan).items():
            path = directory / f"{name}.json"
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise cannot_write(f"--offline-out {directory}", error) from None
    return written


def publish(plan: Plan) -> list[str]:
    """Create both on the server; returns their addresses.

    Raises UserError where the server refuses, does not have an operation, or leaves out of an answer what W&B
    needs, as servers of other versions do.
    """
    try:
        workspace = make_workspace(plan).save()
        report = make_report(plan, is_bound=True).save()
    except (wandb.errors.Error, WandbApiFailedError, requests.RequestException, ValueError) as error:
        reason = " ".join(str(error).split())
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"the server's answer is not what this version of wandb expects ({type(error).__name__}: {error})"
    else:
        return [workspace.url, report.url]
    raise UserError(
        f"{plan.entity}/{plan.project} cannot be published to: {reason}; --offline-out DIR saves the definition"
    )
