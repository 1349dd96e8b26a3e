"""Lets ``import torchvision`` succeed where its compiled operators do not load.

torchvision built for CUDA beside torch built for the CPU cannot load its C++ library. It tolerates that, except
in ``torchvision._meta_registrations``, which describes operators that then do not exist and ends the whole import
with ``RuntimeError: operator torchvision::nms does not exist``; ``import lightning`` fails with it, through
torchmetrics. Data sets and transforms are plain Python and need none of those operators.

So the import of that one module is intercepted: its real code runs, and the module is left empty where that fails
and the operators were not loaded. Everywhere else nothing changes. Calling an operator such as
``torchvision.ops.nms`` still raises torchvision's own explanation.
"""

import sys
from types import ModuleType

from fl_platform._imports import Execute, intercept

_are_operators_missing = False


def install() -> None:
    """Intercept the import; a second call does nothing."""
    intercept("torchvision._meta_registrations", tolerate_absent_operators)


def is_operator_missing() -> bool:
    """Whether torchvision was imported without its compiled operators."""
    return _are_operators_missing


def tolerate_absent_operators(execute: Execute, module: ModuleType) -> None:
    """Run the real module; an absent operator empties it instead of failing the import."""
    global _are_operators_missing
    before = dict(vars(module))
    try:
        execute(module)
    except RuntimeError:
        extension = sys.modules.get("torchvision.extension")  # loads the operators, before this module
        if extension is None or extension._has_ops():
            raise
        vars(module).clear()
        vars(module).update(before)
        _are_operators_missing = True
