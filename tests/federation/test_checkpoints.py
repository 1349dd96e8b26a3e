"""Checkpoints are complete or absent, the last two are kept, and damage is noticed."""

import os

import pytest
import torch

from fl_platform.config.schema import to_dict
from fl_platform.errors import UserError
from fl_platform.federation.checkpoints import AtomicCheckpointIO, check_valid, load, saved_config
from fl_platform.runs.checkpoint_files import newest_valid, sorted_checkpoints
from tests.federations import make_config, synthetic_dataset, train


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Five rounds, saved after each."""
    path = tmp_path_factory.mktemp("checkpoints")
    train(make_config("num_rounds=5", "local_steps=1", "algorithm.name=scaffold"), checkpoints=path)
    return path


@pytest.fixture
def saved(directory, tmp_path):
    """A copy that a test may damage."""
    for _, path in sorted_checkpoints(directory):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def damage(path, how):
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:middle],
            "bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "empty": b"",
        }[how]
    )


def test_the_last_two_are_kept_and_nothing_else_is_left(directory):
    assert [round for round, _ in sorted_checkpoints(directory)] == [5, 4]
    assert len(list(directory.iterdir())) == 2


@pytest.mark.parametrize(("every", "rounds", "expected"), [(0, 4, [4]), (3, 7, [7, 6]), (10, 4, [4])])
def test_a_run_saves_every_few_rounds_and_at_its_end(every, rounds, expected, tmp_path):
    train(make_config(f"num_rounds={rounds}", "local_steps=1"), checkpoints=tmp_path, every=every)
    assert [round for round, _ in sorted_checkpoints(tmp_path)] == expected


def test_a_diverged_run_saves_its_end(tmp_path):
    module = train(
        make_config("local_lr=1e30", "model.norm=none", "num_rounds=9"), checkpoints=tmp_path, every=0
    ).module
    assert [round for round, _ in sorted_checkpoints(tmp_path)] == [module.scoreboard.diverged_round]


def test_a_checkpoint_holds_tensors_and_plain_values_only(directory):
    [(_, newest), _] = sorted_checkpoints(directory)
    loaded = torch.load(newest, weights_only=True)
    assert loaded["epoch"] == 4
    assert loaded["federated"].keys() == {
        *("config", "pool", "streams", "states", "scoreboard", "history", "history_files", "format", "engine")
    }


def test_the_configuration_is_in_it(directory):
    [(_, newest), _] = sorted_checkpoints(directory)
    assert saved_config(newest) == to_dict(make_config("num_rounds=5", "local_steps=1", "algorithm.name=scaffold"))


@pytest.mark.parametrize("how", ["cut", "bit", "empty"])
def test_a_damaged_newest_one_falls_back_with_a_message(how, saved, capsys):
    [(_, newest), (_, before)] = sorted_checkpoints(saved)
    assert newest_valid(saved) == newest
    damage(newest, how)
    assert newest_valid(saved) == before
    assert capsys.readouterr().err == f"checkpoint {newest} is damaged; falling back to the one before\n"
    damage(before, how)
    assert newest_valid(saved) is None


def test_a_partial_file_is_never_picked_up(saved):
    [(_, newest), _] = sorted_checkpoints(saved)
    for name in (".partial-77", "round-000009.ckpt", "round-000009-0123456789abcdef.ckpt.tmp", "last.ckpt"):
        (saved / name).write_bytes(newest.read_bytes()[:100])
    assert newest_valid(saved) == newest
    assert newest_valid(saved / "nowhere") is None


@pytest.mark.parametrize("how", ["cut", "bit", "empty"])
def test_a_damaged_or_renamed_or_missing_explicit_path_is_refused(how, saved):
    [(_, newest), (_, before)] = sorted_checkpoints(saved)
    damage(newest, how)
    renamed = before.rename(saved / "mine.ckpt")
    for path in (newest, renamed):
        with pytest.raises(UserError, match="the file is damaged or was renamed; its content does not match its name"):
            check_valid(path)
    with pytest.raises(UserError, match="no such checkpoint"):
        check_valid(before)


def test_a_save_that_fails_leaves_what_was_there(saved):
    names = sorted(os.listdir(saved))
    with pytest.raises((AttributeError, TypeError, RuntimeError)):  # a generator cannot be pickled
        AtomicCheckpointIO().save_checkpoint({"epoch": 8, "bad": (x for x in ())}, saved)
    assert sorted(os.listdir(saved)) == names


def test_saving_replaces_the_oldest(saved):
    AtomicCheckpointIO().save_checkpoint({"epoch": 5}, saved)
    assert [round for round, _ in sorted_checkpoints(saved)] == [6, 5]
    assert load(newest_valid(saved)) == {"epoch": 5}


@pytest.mark.parametrize("digest", ["0" * 16, "f" * 16])
def test_what_replaces_a_damaged_one_is_kept_with_the_one_before(digest, saved):
    """A damaged file has the round of its replacement: which of the two goes must not hang on their names."""
    [(_, newest), (_, before)] = sorted_checkpoints(saved)
    newest.rename(saved / f"round-000005-{digest}.ckpt")
    AtomicCheckpointIO().save_checkpoint({"epoch": 4}, saved)
    replaced = newest_valid(saved)
    assert load(replaced) == {"epoch": 4}
    assert {path for _, path in sorted_checkpoints(saved)} == {replaced, before}


def test_resuming_from_the_one_before_the_newest_gives_equal_bits(saved):
    config = make_config("num_rounds=5", "local_steps=1", "algorithm.name=scaffold")
    whole = train(config)
    [_, (_, before)] = sorted_checkpoints(saved)
    resumed = train(config, resume=before)
    assert torch.equal(whole.params, resumed.params)
    assert whole.figures() == resumed.figures()


def test_a_checkpoint_without_a_part_is_refused(saved):
    loaded = load(newest_valid(saved))
    del loaded["loops"]
    AtomicCheckpointIO().save_checkpoint({**loaded, "epoch": 6}, saved)
    with pytest.raises(UserError, match="was not written by a run"):
        AtomicCheckpointIO().load_checkpoint(newest_valid(saved))


def test_a_model_of_another_size_is_refused(saved):
    config = make_config("num_rounds=5", "local_steps=1", "algorithm.name=scaffold")
    [_, (_, before)] = sorted_checkpoints(saved)
    with pytest.raises(UserError, match=r"values of global_params and the model [0-9]+: the model was changed"):
        train(config, resume=before, dataset=synthetic_dataset((1, 5, 5)))
