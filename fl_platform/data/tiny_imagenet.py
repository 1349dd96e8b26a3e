"""Reader of Tiny-ImageNet's folders of JPEG files, with a cache of the decoded images.

Only the archive has a published md5, and ``fetch`` checks it. In a folder, or a sample of one, a file that cannot
be decoded, has the wrong shape, or is listed but missing raises ``DamagedFile``.
"""

from pathlib import Path

import numpy as np

from fl_platform.data.pictures import Listing, decoded
from fl_platform.data.readers import DamagedFile, Pair
from fl_platform.data.samples import Samples


def read_tiny_imagenet(folder: Path, cache: Path) -> Pair:
    """Read (train, validation) of a folder, caching decoded arrays in ``cache`` under a digest of the file listing.

    Raises ``DamagedFile`` if a file is missing or damaged.
    """
    classes = {name: label for label, name in enumerate(sorted(read_fields(folder / "wnids.txt")))}
    listings = list_train(folder, classes), list_validation(folder, classes)
    arrays = decoded(folder, listings, side=64, store=cache, name="tiny_imagenet")
    train, validation = (
        Samples.from_arrays(images, np.array([label for _, label in listing]))
        for images, listing in zip(arrays, listings, strict=True)
    )
    return train, validation


def read_fields(path: Path) -> list[str]:
    """The fields of a text file, separated by white space; raises ``DamagedFile`` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFile(path, f"cannot be read ({error})") from None


def is_plain(name: str) -> bool:
    """Whether a listed name is a plain file name, which cannot leave its folder."""
    return "\0" not in name and Path(name).name == name != ".."


def list_train(folder: Path, classes: dict[str, int]) -> Listing:
    """List the training images; raises ``DamagedFile`` if a class has none."""
    listing: Listing = []
    for name, label in classes.items():
        if not is_plain(name):
            raise DamagedFile(folder / "wnids.txt", f"is damaged: {name} is not the name of a class")
        images = folder / "train" / name / "images"
        files = sorted(images.glob("*.JPEG"))
        if not files:
            raise DamagedFile(images, "holds no .JPEG file although wnids.txt names its class")
        listing += [(file, label) for file in files]
    return listing


def list_validation(folder: Path, classes: dict[str, int]) -> Listing:
    """List the validation images from val_annotations.txt: file, class and four box corners per line."""
    path = folder / "val" / "val_annotations.txt"
    fields = read_fields(path)
    if stray := next((file for file in fields[::6] if not is_plain(file)), None):
        raise DamagedFile(path, f"is damaged: {stray} is not the name of a file")
    unknown = set(fields[1::6]) - classes.keys()
    if not fields or len(fields) % 6 or unknown:
        raise DamagedFile(path, f"is damaged: {f'unknown class {min(unknown)}' if unknown else 'a line is incomplete'}")
    return [
        (path.parent / "images" / file, classes[name]) for file, name in zip(fields[::6], fields[1::6], strict=True)
    ]
