"""Scenarios, which are the columns of tables, and the paper's fourteen with network, rounds and target accuracy."""

from dataclasses import dataclass, field
from typing import Any

from fl_platform.errors import unknown_name
from fl_platform.paper.methods import plain

DATA_LABELS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny_imagenet": "Tiny-ImageNet"}
"""The paper's data sets by ``data.name``, in its order."""


@dataclass(frozen=True)
class Scenario:
    """What the runs of one column share: data set, skew and cohort size S.

    ``skew`` is Dirichlet's omega, or the name of another partition. ``data_label`` is how the data set is printed;
    two scenarios that differ in it alone are equal.
    """

    data: str
    skew: str
    cohort_size: int
    data_label: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        label = DATA_LABELS.get(self.data) or self.data_label or self.data
        object.__setattr__(self, "data_label", label)

    @property
    def omega(self) -> float | None:
        """Dirichlet's parameter; None for another partition."""
        try:
            return float(self.skew)
        except ValueError:
            return None

    @property
    def skew_label(self) -> str:
        return self.skew if self.omega is None else f"ω={self.skew}"

    @property
    def pair_label(self) -> str:
        return f"({self.skew}, {self.cohort_size})"

    @property
    def label(self) -> str:
        return f"{self.data_label}, {self.skew_label}, S={self.cohort_size}"

    def order(self) -> tuple[object, ...]:
        """Sorting key: the paper's columns in their order, then others by data set and from mild to strong skew."""
        if self in PAPER_SCENARIOS:
            return (0, PAPER_SCENARIOS.index(self))
        known = list(DATA_LABELS)
        place = known.index(self.data) if self.data in known else len(known)
        return (1, place, self.data, -(self.omega or 0.0), self.skew, self.cohort_size)


@dataclass(frozen=True)
class Column:
    """A column of the paper's tables: a scenario, what the paper runs in it, and Table 2's target accuracy."""

    data: str
    omega: float
    cohort_size: int
    target: float
    model: str
    num_rounds: int
    evaluation_every: int = 1

    @property
    def name(self) -> str:
        """The value of the configuration key ``scenario``, such as ``mnist_w0.01_s10``."""
        return f"{self.data}_w{self.omega:g}_s{self.cohort_size}"

    @property
    def scenario(self) -> Scenario:
        return Scenario(self.data, str(self.omega), self.cohort_size)

    def keys(self) -> dict[str, Any]:
        """The configuration keys that ``scenario=<name>`` sets."""
        return {
            "data": {"name": self.data, "partition": "dirichlet", "dirichlet_omega": self.omega},
            "model": {"name": self.model},
            "num_workers": 100,
            "cohort_size": self.cohort_size,
            "num_rounds": self.num_rounds,
            "evaluation": {"every": self.evaluation_every, "targets": [self.target]},
        }


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("mnist", 1.0, 10, 0.95, "mlp", 500),
        Column("mnist", 0.1, 10, 0.95, "mlp", 500),
        Column("mnist", 0.01, 10, 0.45, "mlp", 500),
        Column("mnist", 0.01, 5, 0.40, "mlp", 500),
        Column("mnist", 0.01, 50, 0.50, "mlp", 500),
        Column("cifar10", 1.0, 10, 0.55, "lenet5", 1000),
        Column("cifar10", 0.1, 10, 0.45, "lenet5", 1000),
        Column("cifar10", 0.01, 10, 0.15, "lenet5", 1000),
        # Table 1 prints omega = 0.1 for CIFAR-100 and Table 2 prints 1.0 for the same runs; Table 1's is used
        Column("cifar100", 0.1, 5, 0.30, "vgg11", 2000),
        Column("cifar100", 0.1, 10, 0.40, "vgg11", 2000),
        Column("cifar100", 0.1, 50, 0.60, "vgg11", 2000),
        Column("tiny_imagenet", 0.01, 5, 0.05, "resnet20", 2000, evaluation_every=5),
        Column("tiny_imagenet", 1.0, 5, 0.30, "resnet20", 2000, evaluation_every=5),
        Column("tiny_imagenet", 1.0, 10, 0.35, "resnet20", 2000, evaluation_every=5),
    )
}
"""The columns of Tables 1 and 2 by name, in their order."""

PAPER_SCENARIOS: tuple[Scenario, ...] = tuple(column.scenario for column in COLUMNS.values())


def scenario_values(name: str) -> dict[str, Any]:
    """The configuration keys of the paper's scenario of this name; a UserError if there is none."""
    if name not in COLUMNS:
        raise unknown_name("scenario", name, COLUMNS)
    return COLUMNS[name].keys()


def data_named(text: str) -> str:
    """The ``data.name`` that a printed spelling such as Tiny-Imagenet means; a UserError if it is not of the paper."""
    for name in DATA_LABELS:
        if plain(name) == plain(text):
            return name
    raise unknown_name("data set", text, DATA_LABELS)
