"""One virtual environment per peer, made when it is first needed and kept below build/peers."""

import hashlib
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.catalogue import Peer, requirements

FOLDER = Path("build") / "peers"


class NotInstalled(Exception):
    """An environment could not be made; the message says why."""


def interpreter(peer: Peer, say: Callable[[str], None], folder: Path = FOLDER) -> Path:
    """The Python of a peer's environment, which is made if it is not there; raises ``NotInstalled``."""
    if peer.environment is None:
        return Path(sys.executable)
    place = (folder / peer.environment).absolute()
    python, wanted = place / "bin" / "python", requirements(peer)
    stamp = place / f"installed-{digest(wanted)}"
    if stamp.is_file():
        return python
    say(f"{peer.name}: installing {', '.join(wanted)} into {place}")
    if not python.is_file():
        venv.create(place, with_pip=True)
    install(python, wanted)
    stamp.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    return python


def install(python: Path, wanted: list[str]) -> None:
    """Install packages; raises ``NotInstalled`` with pip's last line."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"pip install {' '.join(wanted)} failed: {last_line(done.stderr)}")


def digest(wanted: list[str]) -> str:
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]


def last_line(text: str) -> str:
    """The last line that names an error, else the last that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line, re.IGNORECASE)]
    return (errors or lines or ["it said nothing"])[-1][:300]
