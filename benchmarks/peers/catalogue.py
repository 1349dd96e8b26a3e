"""The peers: what each needs installed, and which program runs it."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Peer:
    """One program to compare with."""

    name: str
    label: str
    program: str
    environment: str | None = None  # of what it is named after; None: the one of this process
    packages: tuple[str, ...] = ()
    """What pip installs, torch and torchvision in the versions that this platform uses."""

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.program}.py"


FEDJAX = ("fedjax==0.0.17", "jax==0.4.30", "jaxlib==0.4.30", "dm-haiku==0.0.13", "optax==0.2.3")
"""Its last version, and what was current with it: it uses functions that later ones of jax no longer have."""

PEERS = (
    Peer("fl_platform", "fl_platform, Lightning and W&B log on", "with_fl_platform"),
    Peer("pytorch", "plain PyTorch, a loop over workers", "with_pytorch", "torch", ("torch", "numpy")),
    Peer("vmap", "torch.func.vmap over workers", "with_vmap", "torch", ("torch", "numpy")),
    Peer("pfl", "pfl-research", "with_pfl", "pfl", ("torch", "pfl==0.6.0")),
    Peer("fedlab", "FedLab", "with_fedlab", "fedlab", ("torch", "torchvision", "fedlab==1.3.0")),
    Peer("fedjax", "fedjax, compiled by XLA", "with_fedjax", "fedjax", FEDJAX),
    Peer("flower", "Flower, simulation on Ray", "with_flower", "flower", ("torch", "flwr[simulation]==1.38.0")),
    Peer("fluke", "fluke", "with_fluke", "fluke", ("torch", "torchvision", "fluke-fl==0.8.1")),
)
"""In the order of tables; each runs in its turn."""


def requirements(peer: Peer) -> list[str]:
    """The packages of a peer as pip takes them, with PyTorch as it is here."""
    here = {name: f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "torchvision")}
    return [here.get(package, package) for package in peer.packages]
