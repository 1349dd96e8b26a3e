"""Documents with generated parts, marked ``<!-- NAME: generated -->`` to ``<!-- NAME: end -->``."""

import re
from collections.abc import Callable, Mapping

from fl_platform.errors import UserError, unknown_name

_BLOCK = re.compile(r"(<!-- (?P<name>[a-z0-9_-]+): generated -->\n).*?(<!-- (?P=name): end -->)", re.DOTALL)
_OPENING = re.compile(r"<!-- ([a-z0-9_-]+): generated -->")


def renewed(document: str, text: str, makers: Mapping[str, Callable[[], str]]) -> str:
    """The text of a document with every generated part made anew; everything else is left as it was written."""
    complete = {match["name"] for match in _BLOCK.finditer(text)}
    for name in _OPENING.findall(text):
        if name not in makers:
            raise unknown_name(f"{document}: the generated part", name, makers)
        if name not in complete:
            raise UserError(f"{document}: the generated part {name} has no end; add <!-- {name}: end --> after it")
    return _BLOCK.sub(lambda match: f"{match[1]}\n{makers[match['name']]()}\n{match[3]}", text)
