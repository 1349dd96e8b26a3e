"""The paper's symbols for configuration keys, as figures and tables for a paper show them."""

SYMBOLS = {
    "local_lr": r"\eta_l",
    "server_lr": r"\eta_g",
    "data.dirichlet_omega": r"\omega",
    "cohort_size": "S",
    "num_workers": "N",
    "local_steps": "I",
    "num_rounds": "T",
    "batch_size": "B",
    "algorithm.momentum_decay": r"\beta_1",
    "algorithm.memory_decay": r"\beta_2",
    "algorithm.memory_size": "m",
    "algorithm.mu": r"\mu",
    "algorithm.qp.drop_threshold": r"\delta",
}
"""Key -> the paper's symbol in TeX's mathematics."""

NAMES = {
    "algorithm.name": "Algorithm",
    "algorithm.memory_policy": "Eviction policy",
    "data.name": "Data",
    "model.name": "Network",
    "case": "Reading",
    "seed": "Seed",
}
"""Key -> what an axis or the head of a column calls it, for keys without a symbol."""


def name_of(key: str) -> str:
    """A key as text: its name, or its last part with spaces."""
    return NAMES.get(key) or key.split(".")[-1].replace("_", " ")
