"""Versions of what is kept on disk. The last two of each are read; one of a newer version of the platform is refused.

Format 1 of each is that of release 0.1.0, whose files do not name a format. Format 2 adds: to run directories,
`run.json` and checksums in `result.json`; to checkpoints, files of earlier rows beside them; to ledgers, checksums of
rows; to archives, the number itself.
"""

from fl_platform.errors import UserError

DIRECTORY = CHECKPOINT = LEDGER = ARCHIVE = 2
LEDGER_FILE = "ledger.sqlite"
"""The file that makes a directory that of a sweep."""


class FormatError(UserError):
    """A file or directory that this version cannot read as it is: a newer version wrote it."""


def check_format(what: str, found: object, known: int) -> int:
    """Return the format that a file names; FormatError for a newer one than ``known``, and for none.

    ``what`` begins the sentence, such as ``the ledger runs/ledger.sqlite``.
    """
    if type(found) is not int or found < 1:
        raise FormatError(f"{what} names no format ({str(found)[:40]!r}); this version reads formats up to {known}")
    if found > known:
        raise FormatError(f"{what} has format {found}, of a newer version; this one reads formats up to {known}")
    return found
