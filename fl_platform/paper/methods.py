"""The sixteen methods of the paper's tables, and the groups of all others: names, labels, order, styles, loads."""

import re
from dataclasses import dataclass
from enum import StrEnum

from fl_platform.errors import unknown_name


class Group(StrEnum):
    """The blocks of a table in their order: those of Tables 1 and 2, then methods that are not of the paper."""

    BASELINE = "baseline"
    WORKER = "worker"
    SERVER = "server"
    BOTH = "both"
    SERVER_OPTIMISER = "server optimiser"
    WORKER_CORRECTION = "worker correction"
    PERSONALISED = "personalised"
    ROBUST = "robust"
    PRIVATE = "private"
    REFERENCE = "reference"
    PLUGIN = "plugin"


PAPER = "paper"
"""The group of the paper's sixteen as a class declares it; tables divide them by where they depart from FedAvg."""

FURTHER_GROUPS = tuple(Group)[4:]
"""The groups of methods outside the paper."""


ABOVE, BELOW = ("centralised",), ("local_only",)
"""References that tables show above and below all methods. No reference is ever the best."""


Dashes = str | tuple[int, tuple[float, ...]]
"""A line style of matplotlib: a name, or an offset with the lengths of strokes and gaps."""

DASH: Dashes = (0, (5, 1.5))
DOT: Dashes = (0, (1.2, 1.2))
DASH_DOT: Dashes = (0, (6, 1.5, 1.2, 1.5))
LONG_DASH: Dashes = (0, (9, 2))


@dataclass(frozen=True)
class Style:
    """How a line is drawn."""

    color: str
    dashes: Dashes
    marker: str = ""
    width: float = 1.4


@dataclass(frozen=True)
class Method:
    """A method as tables and figures show it.

    ``name`` is the value of ``algorithm.name``; ``load`` is the communication per round in units of FedAvg's (Table 2
    prints "2x").
    """

    name: str
    label: str
    group: Group
    style: Style
    load: int = 1

    @property
    def contest(self) -> Group:
        """The group within which the best is bold: the paper counts FedAvg among the worker-side methods."""
        return Group.WORKER if self.group == Group.BASELINE else self.group

    @property
    def order(self) -> tuple[int, str]:
        """Sorting key: the paper's order, then other methods by name; references at both ends."""
        return order(self.name)


# Colours of the Okabe-Ito palette, safe for colour-blind readers. Within a grouping below no two methods share one,
# so a figure is readable by colour alone; dashes and markers make it readable without colour.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("fedavg", "FedAvg", Group.BASELINE, Style("#000000", "-", "o")),
        Method("fedprox", "FedProx", Group.WORKER, Style("#56B4E9", "-", "s")),
        Method("fedmlb", "FedMLB", Group.WORKER, Style("#E69F00", "-", "^")),
        Method("moon", "MOON", Group.WORKER, Style("#009E73", "-", "v")),
        Method("scaffold", "Scaffold", Group.WORKER, Style("#CC79A7", DOT, "P"), load=2),
        Method("gradma_w", "GradMA-W", Group.WORKER, Style("#0072B2", DASH_DOT, "<", width=2.0)),
        Method("fedavgm", "FedAvgM", Group.SERVER, Style("#808080", DASH, "o")),
        Method("mifa", "MIFA", Group.SERVER, Style("#0072B2", DOT, "h")),
        Method("mifam", "MIFAM", Group.SERVER, Style("#56B4E9", LONG_DASH, "h")),
        Method("gradma_s", "GradMA-S", Group.SERVER, Style("#E69F00", DASH_DOT, ">", width=2.0)),
        Method("fedproxm", "FedProxM", Group.BOTH, Style("#56B4E9", DASH, "s")),
        Method("fedmlbm", "FedMLBM", Group.BOTH, Style("#E69F00", DASH, "^")),
        Method("moonm", "MOONM", Group.BOTH, Style("#009E73", DASH, "v")),
        Method("feddyn", "FedDyn", Group.BOTH, Style("#0072B2", LONG_DASH, "X")),
        Method("mimelite", "MimeLite", Group.BOTH, Style("#CC79A7", DASH_DOT, "p"), load=2),
        Method("gradma", "GradMA", Group.BOTH, Style("#D55E00", "-", "D", width=2.0)),
    )
}
"""Every method of the paper by its ``algorithm.name``, in the order of its tables."""

_BY_SIDE = {
    side: tuple(name for name, method in METHODS.items() if method.group in (Group.BASELINE, side))
    for side in (Group.WORKER, Group.SERVER, Group.BOTH)
}
GROUPINGS: dict[str, tuple[str, ...]] = {
    **{side.value: names for side, names in _BY_SIDE.items()},
    "gradma": ("gradma_w", "gradma_s", "gradma"),
}
"""The methods that one figure of curves compares: FedAvg with each block of the tables, and GradMA's parts."""


def order(name: str) -> tuple[int, str]:
    """Sorting key of an ``algorithm.name``: the paper's order, then other methods by name; references at both ends."""
    if name in ABOVE:
        return -1, name
    return (_PLACES[name], "") if name in _PLACES else (len(_PLACES) + (name in BELOW), name)


_PLACES = {name: place for place, name in enumerate(METHODS)}


def plain(text: str) -> str:
    """A name without case and punctuation, as print varies them: GradMA-W and gradma_w are both gradmaw."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


_SPELLINGS = {plain(name): method for name, method in METHODS.items()}


def spelled(text: str) -> Method:
    """The paper's method that a printed spelling such as GradMA-W means; a UserError if there is none."""
    if plain(text) not in _SPELLINGS:
        raise unknown_name("method", text, METHODS)
    return _SPELLINGS[plain(text)]
