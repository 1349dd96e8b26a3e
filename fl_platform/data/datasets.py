"""Data sets by name: finding their files on this machine, and loading verified samples."""

import shlex
from pathlib import Path

from fl_platform.config.registry import DATASETS
from fl_platform.data import readers
from fl_platform.data.locations import roots
from fl_platform.data.samples import Samples, shown_types
from fl_platform.data.sets.base import Dataset
from fl_platform.errors import UserError


class DamagedData(UserError):
    """Files of a data set that are not the published ones.

    ``fault`` names the file and what is wrong with it; the message adds the command that fetches the data again.
    """

    def __init__(self, dataset: str, fault: str, command: str) -> None:
        super().__init__(f"{fault}; fetch it again with `{command}`")
        self.dataset, self.fault = dataset, fault


def names() -> list[str]:
    """Return the names of all registered data sets."""
    return DATASETS.names()


def get(name: str) -> Dataset:
    """Return the data set of this name; UserError where none is registered."""
    dataset: Dataset = DATASETS.get(name)
    return dataset


def find(name: str, root: str | Path | None = None) -> Path | None:
    """The folder that holds a data set, or None if it was not found or needs no files."""
    places = [place / folder for place in roots(root) for folder in get(name).folders]
    return next((place for place in places if place.is_dir()), None)


def load(name: str, root: str | Path | None = None) -> tuple[Samples, Samples]:
    """Load and verify a data set; returns (train, test).

    Raises ``UserError`` if it is unknown, not found, or not as described, and ``DamagedData`` if a file is damaged.
    """
    dataset = get(name)
    folder = find(name, root)
    if folder is None and dataset.folders:
        looked = ", ".join(str(place) for place in roots(root))
        command = get_command(name, roots(root)[0] / dataset.folders[0] if root else None)
        raise UserError(f"data.name={name} is not there (looked in {looked}); get it with `{command}`")
    return load_folder(dataset, folder or roots(root)[0])


def load_folder(dataset: Dataset, folder: Path) -> tuple[Samples, Samples]:
    """Load and verify the files in one folder; returns (train, test).

    Raises ``DamagedData`` if a file is damaged, and ``UserError`` if the samples are not as ``dataset`` describes them.
    """
    try:
        loaded = dataset.load(folder)
    except readers.DamagedFile as error:
        raise DamagedData(dataset.name, str(error), get_command(dataset.name, folder)) from None
    if not (isinstance(loaded, tuple) and len(loaded) == 2 and all(isinstance(part, Samples) for part in loaded)):
        raise UserError(
            f"data.name={dataset.name}: load of {type(dataset).__qualname__} must return two Samples, (train, test), "
            f"not {shown_types(loaded)}"
        )
    train, test = loaded
    for part, samples in (("training", train), ("test", test)):
        if fault := dataset.fault(samples):
            where = f" of {folder}" if dataset.folders else ""
            raise UserError(f"data.name={dataset.name}: in the {part} set{where}, {fault}")
    return train, test


def get_command(name: str, folder: Path | None = None) -> str:
    """The shell command that fetches a data set, into the data root that contains ``folder`` if it is given."""
    root = folder and next((up for up in folder.parents if any(up / end == folder for end in get(name).folders)), None)
    return f"python -m fl_platform data get {name}" + (f" --root {shlex.quote(str(root))}" if root else "")
