"""Write build/requirements.hashed.txt: every package of a run with its version and the sha256 of its file.

The file is for this machine's platform and package index: builds of torch for the CPU and for CUDA are different files,
so `constraints.txt`, which serves both, has versions alone. Usage: python -m tools.hashes, then
pip install --require-hashes --no-deps --requirement build/requirements.hashed.txt
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

OUT = Path("build/requirements.hashed.txt")


def resolved(requirements: Path) -> dict[str, Any]:
    """What pip would install from a file of requirements, in the form of its report."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", "--constraint", "constraints.txt", "--requirement"]
    done = subprocess.run([*command, str(requirements)], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines(report: dict[str, Any]) -> list[str]:
    """A requirement with its hash for every package of a report; ValueError where one comes without a hash."""
    found = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if sha256 is None:
            raise ValueError(f"the index gives no sha256 for {name}=={version}")
        found.append(f"{name}=={version} --hash=sha256:{sha256}")
    return sorted(found, key=str.lower)


if __name__ == "__main__":
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join(lines(resolved(Path("requirements.txt")))) + "\n")
    print(OUT)
