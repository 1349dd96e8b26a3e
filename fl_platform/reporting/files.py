"""Where reports lie and what their files hold; needs none of what makes tables and figures of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fl_platform.config.regular_files import read_regular
from fl_platform.config.yaml_limits import check_size
from fl_platform.errors import UserError, did_you_mean

FILE = "report.yaml"
ARCHIVE = "runs.parquet"
OWN_REPORTS = Path("reports")
"""Where a user's reports lie, and where packaged ones are built."""


def list_reports(root: Path) -> dict[str, Path]:
    """The reports below ``root`` by name."""
    return {path.parent.name: path.parent for path in sorted(root.glob(f"*/{FILE}"))}


def read_content(known: Mapping[str, Path], name: str) -> tuple[Path, dict[str, Any]]:
    """The file of the report called ``name`` among ``known`` (name -> directory), and its keys, not checked yet.

    Raises ``UserError`` for a name that is not known and for a file that holds no keys.
    """
    if name not in known:
        hint = did_you_mean(name, known) or f"; there is {', '.join(known) or 'none'}"
        raise UserError(f"report {name} is not known{hint}")
    path = known[name] / FILE
    try:
        text = read_regular(path)
        check_size(text)
        content = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no keys; it needs title, and tables or figures")
    return path, content


def title_of(known: Mapping[str, Path], name: str) -> str:
    """The title of a report, by default its name; UserError as ``read_content``."""
    return str(read_content(known, name)[1].get("title", name))
