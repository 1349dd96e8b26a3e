"""Configurations of earlier versions, read with the keys of this one."""

from typing import Any

MOVED = {
    "qp.solver": "algorithm.qp.solver",
    "qp.scope": "algorithm.qp.scope",
    "qp.worker_margin": "algorithm.qp.worker_margin",
    "qp.server_margin": "algorithm.qp.server_margin",
    "qp.drop_threshold": "algorithm.qp.drop_threshold",
    "memory.policy": "algorithm.memory_policy",
    "memory.device": "algorithm.memory_device",
    "memory.shard": "algorithm.memory_shard",
}
"""Earlier key -> the key it has now."""
_OF_BOTH_SIDES = {"qp.solver", "qp.scope"}
_OF_WORKERS = {"qp.worker_margin"}
_USED_BY = {
    "gradma": set(MOVED),
    "gradma_s": set(MOVED) - _OF_WORKERS,
    "gradma_w": _OF_BOTH_SIDES | _OF_WORKERS,
}
"""Every run had the earlier keys; these algorithms used them."""
ADDED = {"algorithm.qp.log_errors": False}
"""Options that groups of an algorithm got later -> what earlier runs, which do not record them, were made with."""


def upgraded(config: dict[str, Any]) -> dict[str, Any]:
    """Return a nested configuration read from disk with the keys of this version.

    What has moved to the algorithm goes there if the algorithm uses it, and is dropped otherwise; a recorded group gets
    the options that came later. Anything else, and anything that is not a configuration of ours, stays as it is. The
    argument is not changed.
    """
    algorithm = config.get("algorithm")
    if not isinstance(algorithm, dict):
        return config
    return _with_added(_moved(config, algorithm))


def _with_added(config: dict[str, Any]) -> dict[str, Any]:
    for key, default in ADDED.items():
        _, name, field = key.split(".")
        group = config["algorithm"].get(name)
        if isinstance(group, dict) and field not in group:
            config = {**config, "algorithm": {**config["algorithm"], name: {**group, field: default}}}
    return config


def _moved(config: dict[str, Any], algorithm: dict[str, Any]) -> dict[str, Any]:
    used = _USED_BY.get(str(algorithm.get("name")), set())
    if isinstance(point := config.get("point"), str) and any(old in point for old in MOVED):
        config = {**config, "point": _upgraded_point(point, used)}
    if not any(old in config or old.split(".")[0] in config for old in MOVED):
        return config
    config, algorithm = dict(config), dict(algorithm)
    for old, new in MOVED.items():
        group, _, name = old.partition(".")
        if old in config:  # a parameter of a sweep, which W&B records beside the configuration
            value = config.pop(old)
            if old in used:
                config[new] = value
        if not isinstance(config.get(group), dict) or name not in config[group]:
            continue
        config[group] = dict(config[group])
        value = config[group].pop(name)
        if not config[group]:
            del config[group]
        if old in used:
            _, *groups, field = new.split(".")
            place = algorithm
            for inner in groups:
                found = place.get(inner)
                place[inner] = dict(found) if isinstance(found, dict) else {}
                place = place[inner]
            place.setdefault(field, value)
    config["algorithm"] = algorithm
    return config


def _upgraded_point(point: str, used: set[str]) -> str:
    """The words ``key=value`` of a point with the keys of this version, without those that have no effect."""
    words = []
    for word in point.split():
        key, equals, value = word.partition("=")
        if key not in MOVED or key in used:
            words.append(f"{MOVED.get(key, key)}{equals}{value}")
    return " ".join(words)
