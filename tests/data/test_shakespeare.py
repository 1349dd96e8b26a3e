import numpy as np

from fl_platform.data.sets.shakespeare import CHARACTERS, WINDOW, encode, lines_by_role, samples_of

PLAY = """A SHORT PLAY

by Nobody

Persons Represented.

Ann, a queen.
Bob.

SCENE: A room.

ACT I.

SCENE I. A room. Night.

[Enter ANN.]

ANN.
Who is there?
[Aside] I hear
nothing.

BOB. [Within]
A friend.

[He enters,
with a light.]

Come in, they said.

Ann.
So be it.
Then stay.

SCENE II. The same.

A line that belongs to nobody.

FIRST LORD
My lady.

The door is open now.
Enter, sir.
"""


def test_roles_say_their_lines_without_directions_and_headings():
    assert lines_by_role(PLAY) == {
        "ANN": "Who is there?\n I hear\nnothing.\nSo be it.\nThen stay.",
        "BOB": "A friend.\nCome in, they said.",
        "FIRST LORD": "My lady.\nThe door is open now.\nEnter, sir.",
    }


def test_a_text_without_acts_has_no_roles():
    assert lines_by_role("A sonnet.\n\nANN.\nNot in a play.\n") == {}


def test_ids_are_places_in_the_list_of_characters_and_others_are_zero():
    assert [CHARACTERS[token] for token in encode("Ab, 9\n?")] == list("Ab, 9\n?")
    assert encode("é{").tolist() == [0, 0]
    assert len(set(CHARACTERS)) == len(CHARACTERS)


def test_windows_end_where_their_class_stands_and_parts_do_not_share_classes():
    text = "".join(CHARACTERS[1 + i % 60] for i in range(300))
    train, test = samples_of([text, text[:200]])
    tokens = encode(text)
    ends = [*range(80, 240, 5)]
    assert train.labels[train.owners == 0].tolist() == tokens[ends].tolist()
    for row, end in zip(train.features, ends, strict=False):
        assert np.array_equal(row.numpy(), tokens[end - WINDOW : end])
    assert test.labels[test.owners == 0].tolist() == tokens[[240, 290]].tolist()
    assert test.labels[test.owners == 1].tolist() == tokens[[160]].tolist()
    assert train.owners.bincount().tolist() == [32, 16]
