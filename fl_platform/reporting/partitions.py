"""How a run's training data was divided among its workers, worked out again from its configuration."""

import functools
import json
from typing import Any

from fl_platform.config.registry import DATASETS, PARTITIONS
from fl_platform.errors import UserError

_IN_PARTITION = ("data", "num_workers", "seed")
SHOWN_WORKERS = 200


def class_counts(config: dict[str, Any]) -> dict[str, Any]:
    """``counts[worker][class]``; UserError where the data set is not on this machine."""
    given = {key: config[key] for key in _IN_PARTITION if key in config}
    if config.get("plugins") and not _is_built_in(config.get("data")):
        raise UserError("plugins are not imported here; `fl_platform data partition` shows this partition")
    return _counts(json.dumps(given, sort_keys=True))


def _is_built_in(data: Any) -> bool:
    """Whether data set and partition come with the package; a run's plugins may be about anything else."""
    if not isinstance(data, dict):
        return False
    return str(data.get("name")) in DATASETS and str(data.get("partition") or "iid") in PARTITIONS


@functools.lru_cache(maxsize=16)
def _counts(text: str) -> dict[str, Any]:
    from fl_platform.config.compose import from_given, parse_mapping
    from fl_platform.config.resolve import resolve
    from fl_platform.data import datasets  # torch: seconds and memory that no other view needs
    from fl_platform.data.prepare import partition_of, prepare

    config = resolve(from_given(parse_mapping({**json.loads(text), "cohort_size": 1}, "config"))).config
    train, _ = prepare(config)
    counts = partition_of(config, train).class_counts(train.labels, datasets.get(config.data.name).num_classes)
    sizes = counts.sum(axis=1)
    return {"counts": counts[:SHOWN_WORKERS].tolist(), "workers": len(counts), "sizes": sizes.tolist()}
