"""How the paper's algorithms, data sets and scenarios are named, ordered, grouped and drawn, everywhere alike."""

import re
from dataclasses import dataclass

from fl_platform.paper.scenarios import scenarios

BASELINE, WORKER, SERVER, BOTH, OTHER = "baseline", "worker", "server", "both", "other"
BLOCKS = (BASELINE, WORKER, SERVER, BOTH, OTHER)
"""The blocks of Tables 1 and 2, in order."""

Dashes = str | tuple[int, tuple[float, ...]]
_DASH: Dashes = (0, (5, 1.5))
_DOT: Dashes = (0, (1.2, 1.2))
_DASHDOT: Dashes = (0, (6, 1.5, 1.2, 1.5))
_LONG: Dashes = (0, (9, 2))


@dataclass(frozen=True)
class AlgorithmStyle:
    """``load`` is the communication per round in units of FedAvg's (Table 2's "2x")."""

    label: str
    block: str
    color: str
    dashes: Dashes
    marker: str
    load: int = 1

    @property
    def contest(self) -> str:
        """Whose best is bold: the paper counts FedAvg among the worker-side algorithms."""
        return WORKER if self.block == BASELINE else self.block


# Colours of the Okabe-Ito palette, safe for colour-blind readers. Within a grouping below no two algorithms share
# one, so a figure is readable by colour alone; dashes and markers make it readable without colour.
ALGORITHMS: dict[str, AlgorithmStyle] = {
    "fedavg": AlgorithmStyle("FedAvg", BASELINE, "#000000", "-", "o"),
    "fedprox": AlgorithmStyle("FedProx", WORKER, "#56B4E9", "-", "s"),
    "fedmlb": AlgorithmStyle("FedMLB", WORKER, "#E69F00", "-", "^"),
    "moon": AlgorithmStyle("MOON", WORKER, "#009E73", "-", "v"),
    "scaffold": AlgorithmStyle("Scaffold", WORKER, "#CC79A7", _DOT, "P", load=2),
    "gradmaw": AlgorithmStyle("GradMA-W", WORKER, "#0072B2", _DASHDOT, "<"),
    "fedavgm": AlgorithmStyle("FedAvgM", SERVER, "#808080", _DASH, "o"),
    "mifa": AlgorithmStyle("MIFA", SERVER, "#0072B2", _DOT, "h"),
    "mifam": AlgorithmStyle("MIFAM", SERVER, "#56B4E9", _LONG, "h"),
    "gradmas": AlgorithmStyle("GradMA-S", SERVER, "#E69F00", _DASHDOT, ">"),
    "fedproxm": AlgorithmStyle("FedProxM", BOTH, "#56B4E9", _DASH, "s"),
    "fedmlbm": AlgorithmStyle("FedMLBM", BOTH, "#E69F00", _DASH, "^"),
    "moonm": AlgorithmStyle("MOONM", BOTH, "#009E73", _DASH, "v"),
    "feddyn": AlgorithmStyle("FedDyn", BOTH, "#0072B2", _LONG, "X"),
    "mimelite": AlgorithmStyle("MimeLite", BOTH, "#CC79A7", _DASHDOT, "p", load=2),
    "gradma": AlgorithmStyle("GradMA", BOTH, "#D55E00", "-", "D"),
}

GROUPINGS: dict[str, tuple[str, ...]] = {
    "worker": ("fedavg", "fedprox", "fedmlb", "moon", "scaffold", "gradmaw"),
    "server": ("fedavg", "fedavgm", "mifa", "mifam", "gradmas"),
    "both": ("fedavg", "fedproxm", "fedmlbm", "moonm", "feddyn", "mimelite", "gradma"),
    "gradma": ("gradmaw", "gradmas", "gradma"),
}
"""The algorithms that one figure of curves compares."""

SEQUENCE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#808080")
"""Colours of lines that are not algorithms, such as memory sizes."""

SEQUENCE_DASHES: tuple[Dashes, ...] = ("-", _DASH, _DOT, _DASHDOT, _LONG)

_DATA_SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "Tiny-ImageNet"}
_DATA_SETS |= {"digits": "Digits", "fashionmnist": "Fashion-MNIST"}


def normal(name: object) -> str:
    """A name without case and punctuation: gradma_w, GradMA-W -> gradmaw."""
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def algorithm_style(name: str) -> AlgorithmStyle:
    """The style of a published algorithm; one from outside is grey and keeps its own name."""
    return ALGORITHMS.get(normal(name)) or AlgorithmStyle(str(name), OTHER, "#555555", _DOT, "*")


def algorithm_order(name: str) -> tuple[int, str]:
    """Sorting key: the paper's order, then others by name."""
    known = list(ALGORITHMS)
    return (known.index(normal(name)), "") if normal(name) in ALGORITHMS else (len(known), str(name))


@dataclass(frozen=True)
class Scenario:
    """A column of the tables. ``skew`` is Dirichlet's omega, or the name of another partition."""

    data: str
    skew: str
    cohort_size: int

    @property
    def data_label(self) -> str:
        return _DATA_SETS.get(normal(self.data), self.data)

    @property
    def skew_label(self) -> str:
        return f"ω={self.skew}" if self.is_dirichlet else self.skew

    @property
    def is_dirichlet(self) -> bool:
        return self.skew.replace(".", "", 1).replace("e-", "", 1).isdigit()

    @property
    def pair_label(self) -> str:
        return f"({self.skew}, {self.cohort_size})"

    @property
    def label(self) -> str:
        return f"{self.data_label}, {self.skew_label}, S={self.cohort_size}"

    def order(self) -> tuple[object, ...]:
        """The paper's order of columns, then other scenarios by name and from mild to strong skew."""
        if self.key in PAPER_SCENARIOS:
            return (0, PAPER_SCENARIOS.index(self.key))
        known = list(_DATA_SETS)
        place = known.index(normal(self.data)) if normal(self.data) in known else len(known)
        return (1, place, self.data, -float(self.skew) if self.is_dirichlet else 0.0, self.skew, self.cohort_size)

    @property
    def key(self) -> tuple[str, str, int]:
        return (normal(self.data), self.skew, self.cohort_size)


PAPER_SCENARIOS: tuple[tuple[str, str, int], ...] = tuple(
    Scenario(values["data"]["name"], str(values["data"]["dirichlet_omega"]), values["cohort_size"]).key
    for values in scenarios().values()
)
"""The columns of Table 1, in its order."""
