"""Import torchvision also where it was built for CUDA and torch for the CPU: its operators, unused here, do not load.

Its import then fails at the operators that it describes without asking whether they are there, one after another.
"""

import re

import torch


def declare_missing() -> None:
    """Declare every operator that the import of torchvision misses; none where its library loads."""
    while True:
        try:
            import torchvision  # noqa: F401
        except RuntimeError as error:
            missing = re.search(r"operator (torchvision::\w+) does not exist", str(error))
            if missing is None:
                raise
            torch.library.define(missing.group(1), "(Tensor unused) -> Tensor")
        else:
            return


declare_missing()
