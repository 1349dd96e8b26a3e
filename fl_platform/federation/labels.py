"""What a run records of its method and data set for reports, which cannot import a plugin that defines them."""

from fl_platform.algorithms import base
from fl_platform.config.schema import Config
from fl_platform.data import datasets


def labels(config: Config) -> dict[str, str]:
    """How tables and figures call a run's method and data set, and the side of the federation the method changes."""
    method = base.get(config.algorithm["name"])
    return {"label": method.label, "kind": method.kind, "data_label": datasets.get(config.data.name).label}
