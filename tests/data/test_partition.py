import dataclasses
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.config.compose import compose
from fl_platform.config.data_schema import DataConfig
from fl_platform.config.registry import PARTITIONS
from fl_platform.config.resolve import resolve
from fl_platform.data.partition import Partition, Partitioner, make_partition
from fl_platform.data.partitions.given import Natural
from fl_platform.data.prepare import partition_of, prepare, split_validation
from fl_platform.data.samples import Samples
from fl_platform.errors import UserError

KINDS = ("dirichlet", "iid", "shards", "dirichlet_workers", "quantity")
LABELS = np.repeat(np.arange(10), 5500)


@st.composite
def problems(draw):
    """Labels with gaps and rare classes, and a number of workers they can serve."""
    num_workers = draw(st.integers(1, 30))
    num_classes = draw(st.integers(1, 8))
    size = draw(st.integers(3 * num_workers, 6 * num_workers))
    labels = draw(st.lists(st.integers(0, num_classes - 1), min_size=size, max_size=size))
    return np.array(labels), num_workers


def dealt(labels, num_workers, kind="dirichlet", seed=0, omega=0.1, shards_per_worker=2, **keys) -> Partition:
    data = DataConfig(dirichlet_omega=omega, shards_per_worker=shards_per_worker, **keys)
    rule = PARTITIONS.get(kind)
    values = {field.name: getattr(data, field.name) for field in dataclasses.fields(rule)}
    return divided(rule(**values), labels, num_workers, seed)


def divided(rule, labels, num_workers, seed=0, owners=None) -> Partition:
    owners = None if owners is None else torch.as_tensor(owners)
    samples = Samples(torch.zeros(len(labels), 1), torch.as_tensor(labels), owners)
    return make_partition(rule, samples, num_workers, np.random.default_rng(seed))


@given(
    problems(),
    st.sampled_from(KINDS),
    st.sampled_from([1e-300, 1e-6, 0.01, 0.1, 1.0, 1e6, 1e308]),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_every_sample_is_dealt_once_and_each_worker_has_two(problem, kind, omega, shards, seed):
    labels, num_workers = problem
    partition = dealt(labels, num_workers, kind, seed, omega, shards)
    assert np.array_equal(np.sort(partition.indices), np.arange(len(labels)))
    assert partition.num_workers == num_workers
    assert partition.sizes.min() >= 2
    assert partition.offsets[0] == 0
    assert partition.offsets[-1] == len(labels)


@given(problems(), st.sampled_from(KINDS))
def test_the_stream_alone_decides(problem, kind):
    labels, num_workers = problem
    first, again = (dealt(labels, num_workers, kind, seed=7) for _ in range(2))
    assert np.array_equal(first.indices, again.indices)
    assert np.array_equal(first.offsets, again.offsets)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_deals_otherwise(kind):
    assert not np.array_equal(dealt(LABELS, 100, kind, seed=0).indices, dealt(LABELS, 100, kind, seed=1).indices)


@given(problems())
def test_class_counts_agree_with_counting(problem):
    labels, num_workers = problem
    partition = dealt(labels, num_workers)
    counts = partition.class_counts(labels, 9)
    for worker in range(num_workers):
        assert counts[worker].tolist() == [int((labels[partition.of(worker)] == label).sum()) for label in range(9)]


def reference_dirichlet(labels, num_workers, rng, omega):
    """The rule of the paper's code, worker by worker and class by class."""
    num_classes = labels.max() + 1
    remaining = [list(np.flatnonzero(labels == label)) for label in range(num_classes)]
    owned = [[] for _ in range(num_workers)]
    draws = iter(rng.integers(num_classes, size=2 * num_workers))
    for _ in range(2):
        for worker in range(num_workers):
            owned[worker].append(remaining[next(draws)].pop())
    for members in remaining:
        members = rng.permutation(members)
        shares = rng.dirichlet(np.full(num_workers, omega))
        cuts = (np.cumsum(shares)[:-1] * len(members)).astype(int)
        for worker, piece in enumerate(np.split(members, cuts)):
            owned[worker].extend(piece)
    return owned


@pytest.mark.parametrize("omega", [0.01, 0.1, 1.0])
def test_dirichlet_equals_the_rule_of_the_papers_code(omega):
    labels = np.random.default_rng(3).integers(5, size=2000)
    partition = dealt(labels, 40, seed=11, omega=omega)
    for worker, owned in enumerate(reference_dirichlet(labels, 40, np.random.default_rng(11), omega)):
        assert partition.of(worker).tolist() == owned


def test_exhausted_classes_are_drawn_again_among_the_others():
    labels = np.array([0] * 95 + [1] * 3 + [4] * 2)
    partition = dealt(labels, 50)
    assert partition.sizes.tolist() == [2] * 50


def test_regimes_of_omega_on_ten_classes():
    """Medians over seeds of section 2.2's table: median n, share n = 2, share n < 64, classes a worker, 1 / sum q^2."""

    def regime(omega):
        rows = []
        for seed in range(7):
            partition = dealt(LABELS, 100, seed=seed, omega=omega)
            sizes = partition.sizes
            classes = (partition.class_counts(LABELS, 10) > 0).sum(1).mean()
            effective = sizes.sum() ** 2 / (sizes**2).sum()
            rows.append((np.median(sizes), (sizes == 2).mean(), (sizes < 64).mean(), classes, effective))
        return np.median(rows, axis=0)

    median, twos, small, classes, effective = regime(0.01)
    assert 4 <= median <= 25
    assert 0.35 <= twos <= 0.5
    assert 0.55 <= small <= 0.7
    assert 2.3 <= classes <= 3.0
    assert 14 <= effective <= 22
    median, _, small, classes, effective = regime(0.1)
    assert 350 <= median <= 450
    assert 0.05 <= small <= 0.15
    assert 5.5 <= classes <= 6.3
    assert 45 <= effective <= 60
    median, _, small, classes, effective = regime(1.0)
    assert 500 <= median <= 570
    assert small == 0
    assert classes > 9.8
    assert 88 <= effective <= 95


@pytest.mark.parametrize("omega", [1e7, 1e308])
def test_large_omega_is_close_to_iid(omega):
    counts = dealt(LABELS, 100, omega=omega).class_counts(LABELS, 10)
    assert np.abs(counts - 55).max() <= 4  # the two reserved samples and rounding


@pytest.mark.parametrize("omega", [1e-6, 1e-300])
def test_tiny_omega_gives_each_class_to_one_worker_chosen_evenly(omega):
    owners = []
    for seed in range(60):
        counts = dealt(LABELS, 10, seed=seed, omega=omega).class_counts(LABELS, 10)
        assert (counts.max(axis=0) > 5450).all()
        owners += counts.argmax(axis=0).tolist()
    assert np.bincount(owners, minlength=10).min() > 30  # 60 expected each; 5.2 standard deviations


def test_iid_hands_are_equal_up_to_one_sample():
    sizes = dealt(LABELS[:1003], 10, "iid").sizes
    assert set(sizes.tolist()) == {100, 101}


def test_shards_are_runs_of_one_label():
    partition = dealt(np.random.default_rng(0).permutation(LABELS), 100, "shards")
    assert (partition.sizes == 550).all()
    labels = np.random.default_rng(0).permutation(LABELS)
    counts = partition.class_counts(labels, 10)
    assert set(counts[counts > 0].tolist()) <= {275, 550}


def test_a_million_workers_are_possible():
    labels = np.random.default_rng(0).integers(10, size=2_500_000)
    partition = dealt(labels, 1_000_000)
    assert partition.sizes.min() == 2
    assert partition.sizes.sum() == 2_500_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_workers", [0, 51])
def test_fewer_than_two_samples_a_worker_are_refused(kind, num_workers):
    with pytest.raises(UserError, match=f"num_workers={num_workers} .* between 1 and 50"):
        dealt(LABELS[:101], num_workers, kind)


def test_more_shards_than_samples_are_refused():
    with pytest.raises(UserError, match=r"data.shards_per_worker=11 .* at most 10 shards"):
        dealt(LABELS[:100], 10, "shards", shards_per_worker=11)


def test_unknown_kind_is_refused():
    with pytest.raises(UserError, match=r"data.partition=irichlet .* did you mean 'dirichlet'"):
        resolve(compose(["data.partition=irichlet"]))


def test_deal_follows_the_configuration():
    train = Samples(torch.zeros(1100, 1), torch.as_tensor(LABELS[::50]))

    def of(*words):
        return partition_of(resolve(compose(["num_workers=20", *words])).config, train).indices

    assert np.array_equal(of(), of("algorithm.name=gradma"))
    for word in ("seed=1", "data.dirichlet_omega=1.0", "data.partition=iid", "data.partition=classes"):
        assert not np.array_equal(of(), of(word)), word


@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 99))
def test_classes_gives_each_worker_k_of_them_and_every_class_to_as_many_workers(num_workers, wanted, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), 400))
    if wanted * num_workers < 10:
        with pytest.raises(UserError, match=r"data.classes_per_worker=.* a worker has at least \d+ and at most 10"):
            dealt(labels, num_workers, "classes", seed, classes_per_worker=wanted)
        return
    partition = dealt(labels, num_workers, "classes", seed, classes_per_worker=wanted)
    counts = partition.class_counts(labels, 10)
    assert (np.count_nonzero(counts, axis=1) == wanted).all()
    num_owners = np.count_nonzero(counts, axis=0)
    assert num_owners.max() - num_owners.min() <= 1
    for label in range(10):  # evenly among those who have it
        own = counts[counts[:, label] > 0, label]
        assert own.max() - own.min() <= 1
    assert np.array_equal(np.sort(partition.indices), np.arange(len(labels)))


def test_more_classes_than_there_are_and_too_small_classes_are_refused():
    with pytest.raises(UserError, match="at most 10 of them"):
        dealt(LABELS, 10, "classes", classes_per_worker=11)
    with pytest.raises(UserError, match=r"data.partition=classes gives worker \d+ 1 of 20 .* each worker needs 2"):
        dealt(np.array([0] * 17 + [1] * 3), 6, "classes", classes_per_worker=1)


def test_dirichlet_workers_draw_their_own_classes_and_have_equal_sizes():
    """E[sum_c P_c^2] = (omega + 1) / (C omega + 1) for P ~ Dirichlet(omega 1_C), while classes last."""
    for omega, tolerance in ((100.0, 0.02), (1.0, 0.06)):
        partition = dealt(LABELS, 100, "dirichlet_workers", omega=omega)
        assert set(partition.sizes.tolist()) == {550}
        shares = partition.class_counts(LABELS, 10) / 550
        expected = (omega + 1) / (10 * omega + 1)
        assert np.square(shares).sum(axis=1).mean() == pytest.approx(expected, abs=tolerance)


def test_quantity_sizes_follow_their_law_and_labels_are_iid():
    sizes = dealt(LABELS, 100, "quantity", quantity_sizes="power_law", quantity_spread=1.5).sizes
    shares = np.arange(1, 101) ** -1.5
    expected = 2 + (55000 - 200) * shares / shares.sum()
    assert np.abs(np.sort(sizes)[::-1] - expected).max() <= 1
    sizes = dealt(LABELS, 1000, "quantity", quantity_spread=1.2).sizes
    assert np.log(sizes - 1.5).std() == pytest.approx(1.2, abs=0.15)
    equal = dealt(LABELS, 100, "quantity", quantity_spread=0.0)
    assert set(equal.sizes.tolist()) == {550}
    assert np.abs(equal.class_counts(LABELS, 10) - 55).max() < 40


def test_natural_gives_each_worker_one_owner_and_a_seeded_subset_of_them():
    owners = np.random.default_rng(0).permutation(np.repeat(np.arange(7), [2, 3, 4, 5, 6, 7, 8]))
    labels = np.zeros(len(owners), np.int64)
    everyone = divided(Natural(), labels, 7, owners=owners)
    for worker in range(7):
        assert everyone.of(worker).tolist() == np.flatnonzero(owners == worker).tolist()
    some = [divided(Natural(), labels, 3, seed, owners=owners) for seed in (0, 0, 1, 2, 3)]
    assert np.array_equal(some[0].indices, some[1].indices)
    chosen = [tuple(owners[partition.of(worker)[0]] for worker in range(3)) for partition in some]
    assert len(set(chosen)) > 1
    for partition, workers in zip(some, chosen, strict=True):
        assert partition.indices.tolist() == [i for owner in workers for i in np.flatnonzero(owners == owner).tolist()]
    with pytest.raises(UserError, match="num_workers=8 exceeds the 7 owners"):
        divided(Natural(), labels, 8, owners=owners)
    with pytest.raises(UserError, match=r"natural needs samples with owners.*shakespeare"):
        divided(Natural(), labels, 3)


def test_owners_with_one_sample_or_none_are_no_workers():
    owners = np.array([0, 0, 2, 3, 3, 3, 4, 4])  # 1 has none and 2 has one
    labels = np.zeros(len(owners), np.int64)
    with pytest.raises(UserError, match=r"num_workers=4 .* owner 1 has 0; give num_workers=3 to leave such owners out"):
        divided(Natural(), labels, 4, owners=owners)
    for seed in range(5):
        everyone, two = (divided(Natural(), labels, count, seed, owners=owners) for count in (3, 2))
        assert [owners[everyone.of(worker)].tolist() for worker in range(3)] == [[0, 0], [3, 3, 3], [4, 4]]
        assert 2 not in owners[two.indices]


def test_validation_takes_from_every_owner_and_loses_none():
    rng = np.random.default_rng(0)
    owners, labels = np.repeat(np.arange(4), (2, 3, 20, 40)), rng.integers(0, 3, 65)
    mixed = rng.permutation(65)
    data = Samples.from_arrays(np.zeros((65, 1, 2, 2), np.uint8), labels[mixed], owners=owners[mixed])
    train, held = split_validation(data, 0.25, 0, by_owner=True)
    assert np.bincount(train.owners).tolist() == [2, 2, 15, 30]
    assert np.bincount(held.owners, minlength=4).tolist() == [0, 1, 5, 10]


def test_null_is_every_owner_for_natural_and_a_hundred_otherwise():
    assert resolve(compose([])).config.num_workers == 100
    assert resolve(compose(["data.name=shakespeare"])).config.num_workers == 1011
    assert resolve(compose(["data.name=shakespeare", "num_workers=50"])).config.num_workers == 50
    with pytest.raises(UserError, match="cohort_size=101 exceeds num_workers=100"):
        resolve(compose(["cohort_size=101"]))


PLUGIN = """
from dataclasses import dataclass

import numpy as np

from fl_platform import Partitioner, option


@dataclass(frozen=True)
class Stride(Partitioner, name="stride"):
    "Sample i belongs to worker i mod N; the first few are left out."

    skipped: int = option(0, "samples left out", at_least=0)

    def assign(self, train, num_workers, rng):
        indices = np.arange(self.skipped, len(train))
        return indices, indices % num_workers if self.skipped < 9 else indices
"""


def test_a_plugin_adds_a_partition_with_parameters(tmp_path, monkeypatch):
    (tmp_path / "stride_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    PARTITIONS.load()
    monkeypatch.setattr(PARTITIONS, "_entries", dict(PARTITIONS._entries))
    base = ["plugins=[stride_plugin]", "data.partition=stride", "num_workers=10"]
    plain, given = (resolve(compose([*base, *more])) for more in ([], ["data.partition_options.skipped=3"]))
    assert plain.config.data.partition_options == {"skipped": 0}
    assert plain.run_id != given.run_id
    assert plain.run_id == resolve(compose([*base, "data.partition_options.skipped=0"])).run_id
    assert "digits stride3 S10" in given.group
    train, _ = prepare(given.config)
    assert partition_of(given.config, train).of(3).tolist() == list(range(3, len(train), 10))
    for value, message in (("-1", ">= 0"), ("many", "has the wrong type; expected int")):
        with pytest.raises(UserError, match=f"data.partition_options.skipped={value} .*{message}"):
            resolve(compose([*base, f"data.partition_options.skipped={value}"]))
    with pytest.raises(UserError, match=r"data.partition=stride has no such parameter; it has skipped"):
        resolve(compose([*base, "data.partition_options.skip=1"]))
    wrong = resolve(compose([*base, "data.partition_options.skipped=9"])).config
    with pytest.raises(UserError, match=r"data.partition=stride gives worker \d+; workers are 0..9"):
        partition_of(wrong, train)


@pytest.mark.parametrize(
    ("assigned", "message"),
    [
        (None, "assign of .*Odd must return indices and their workers, not NoneType"),
        (np.arange(10), "assign of .*Odd must return indices and their workers, not ndarray"),
        ((1, 2, 3), r"assign of .*Odd must return indices and their workers, not \(int, int, int\)"),
        (("a", "b"), "indices are <U1; they must be whole numbers from 0 on"),
        ((range(4), iter(range(4))), "workers are object; they must be whole numbers from 0 on"),
        (([0, 1, 2, 3], [0, 0.5, 1, 1]), "workers contain 0.5; they must be whole numbers from 0 on"),
        (([0, 1, 2, 3], [0, 0, 1, float("nan")]), "workers contain nan; they must be whole numbers from 0 on"),
        (([[0], [1, 2]], [0, 1]), "indices are no array: "),
    ],
)
def test_what_a_rule_of_the_users_returns_is_checked(assigned, message):
    class Odd(Partitioner):
        name = "odd"

        def assign(self, train, num_workers, rng):
            return assigned

    samples = Samples(torch.zeros(10, 1), torch.zeros(10, dtype=torch.int64))
    with pytest.raises(UserError, match=f"data.partition=odd: {message}"):
        make_partition(Odd(), samples, 2, np.random.default_rng(0))


@pytest.mark.parametrize("written", ["features", "labels", "owners"])
def test_a_rule_of_the_users_that_writes_to_the_samples_is_refused(written):
    class Writes(Partitioner):
        name = "writes"

        def assign(self, train, num_workers, rng):
            getattr(train, written).numpy()[3] = 1
            return np.arange(10), np.arange(10) % num_workers

    samples = Samples(torch.zeros(10, 1), torch.zeros(10, dtype=torch.int64), torch.zeros(10, dtype=torch.int64))
    with pytest.raises(UserError, match=r"data.partition=writes: assign of .*Writes wrote to the samples"):
        make_partition(Writes(), samples, 2, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("table: object = option(object(), '')", "is of type object; a field must be a number, a text"),
        ("table: int", "has no default; give it a value, or declare one by option"),
    ],
)
def test_fields_that_no_configuration_can_hold_are_refused(field, message, tmp_path, monkeypatch):
    (tmp_path / "odd_fields_plugin.py").write_text(
        PLUGIN.replace('skipped: int = option(0, "samples left out", at_least=0)', field)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    PARTITIONS.load()
    monkeypatch.setattr(PARTITIONS, "_entries", dict(PARTITIONS._entries))
    monkeypatch.delitem(sys.modules, "odd_fields_plugin", raising=False)
    with pytest.raises(UserError, match=f"data.partition_options.table of data.partition=stride {message}"):
        resolve(compose(["plugins=[odd_fields_plugin]", "data.partition=stride", "num_workers=10"]))
