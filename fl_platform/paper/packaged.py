"""Where the sweeps and report definitions of the platform lie: in a checkout, or inside an installed package.

A checkout has them in its folders ``sweeps/`` and ``reports/``. Building the package (``setup.py``) copies those
folders to ``fl_platform/paper/files``, so that every command works from any directory after ``pip install``.
"""

from pathlib import Path

from fl_platform.errors import UserError, did_you_mean

_INSTALLED = Path(__file__).parent / "files"
_CHECKOUT = Path(__file__).parents[2]


def packaged(folder: str) -> Path:
    """The directory of the packaged ``sweeps`` or ``reports``."""
    return (_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT) / folder


def sweep_file(target: Path) -> Path:
    """The file or directory a user means by ``target``: a bare name is a packaged sweep, anything else a path.

    Raises ``UserError`` for a bare name that is neither a packaged sweep nor something in the working directory.
    """
    if target.exists() or target.suffix or len(target.parts) != 1:
        return target
    folder = packaged("sweeps")
    names = sorted(path.stem for path in folder.glob("*.yaml") if not path.name.startswith("chosen_"))
    if target.name not in names:
        hint = did_you_mean(target.name, names) or f"; give the path of a YAML, or one of {', '.join(names)}"
        raise UserError(f"sweep {target.name} is not known{hint}")
    return folder / f"{target.name}.yaml"


def chosen_file(path: Path) -> Path:
    """A file of chosen values: ``path`` itself, or the packaged file where ``sweeps/NAME`` is not in this directory.

    Packaged sweeps name their files of chosen values as ``sweeps/chosen_DATA.yaml``.
    """
    if path.exists() or path.parent != Path("sweeps") or not (packaged("sweeps") / path.name).is_file():
        return path
    return packaged("sweeps") / path.name
