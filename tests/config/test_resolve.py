"""What a run is: resolved keys, run ids, fields of algorithms, and what is refused before any work starts."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from fl_platform.algorithms import base
from fl_platform.config.compose import compose
from fl_platform.config.options import condition, default_of, enters_identity, group, option, walk
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.resolve import identity, resolve
from fl_platform.config.schema import PLACEMENT_FIELDS, known_keys, to_dict
from fl_platform.data import datasets
from fl_platform.errors import UserError
from tests.federations import needed


def spec_of(*args):
    return resolve(compose(list(args)))


def resolved(*args):
    return spec_of(*args).config


def identifier(*args):
    return spec_of(*args).run_id


def test_a_spec_is_frozen_and_says_where_the_run_lies():
    spec = spec_of("output.dir=somewhere", "algorithm.name=fedprox", "seed=4")
    assert spec.directory == Path("somewhere") / spec.run_id
    assert (spec.output, spec.algorithm, spec.title) == (Path("somewhere"), "fedprox", "fedprox on digits")
    assert spec.name == f"fedprox-digits-seed4-{spec.run_id}"
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.run_id = "another"


def test_the_directory_of_a_run_decides_its_id_and_output(tmp_path):
    spec = resolve(compose(["output.dir=elsewhere"]), directory=tmp_path / "0123456789ab")
    assert (spec.run_id, spec.output, spec.config.output.dir) == ("0123456789ab", tmp_path, str(tmp_path))
    assert spec.group_id == spec_of().group_id


def test_keys_left_open_follow_the_data_set():
    config = resolved("data.name=tiny_imagenet")
    assert (config.num_rounds, config.model.name, config.evaluation.every) == (2000, "resnet20", 5)
    assert config.evaluation.targets == list(datasets.get("tiny_imagenet").targets)
    given = resolved(
        "data.name=tiny_imagenet", "num_rounds=3", "model.name=mlp", "evaluation.every=1", "evaluation.targets=[]"
    )
    assert (given.num_rounds, given.model.name, given.evaluation.every, given.evaluation.targets) == (3, "mlp", 1, [])


def test_resolving_twice_changes_nothing():
    spec = spec_of("algorithm.name=gradma", "data.name=mnist", "preset=released")
    assert resolve(spec.config) == spec


PLACEMENT = {
    "threads": "2",
    "device": "cpu",
    "engine": "stacked",
    "graphs": "true",
    "cohort_chunk": "1",
    "output.dir": "elsewhere",
    "data.root": "/data",
    "tracking.mode": "disabled",
    "tracking.project": "p",
    "tracking.entity": "e",
    "tracking.group": "g",
    "tracking.tags": "[a]",
    "tracking.media": "true",
    "tracking.console": "true",
    "tracking.artifacts": "last",
    "tracking.resources_every": "1",
    "tracking.also": "[csv]",
    "tracking.alert": "true",
    "checkpoint.every": "7",
    "checkpoint.keep_finished": "false",
    "checkpoint.keep_best": "true",
    "state.device": "cpu",
    "preset": "paper",
    "scenario": "null",
    "chosen": "null",
    "point": "null",
    "plugins": "[json]",
    "callbacks": "[lightning.pytorch.callbacks.Timer]",
    "trainer": "{devices: 2, profiler: simple}",
}
IDENTITY = {
    "seed": "1",
    "data.name": "mnist",
    "data.partition": "iid",
    "data.validation_fraction": "0.1",
    "model.name": "lenet5",
    "model.norm": "group",
    "model.width": "16",
    "model.options": "{a: 1}",
    "num_workers": "50",
    "cohort_size": "5",
    "cohort_sampling": "poisson",
    "num_rounds": "7",
    "local_steps": "2",
    "local_epochs": "2",
    "local_lr_schedule": "cosine",
    "local_momentum": "0.5",
    "local_weight_decay": "0.001",
    "local_clip": "1",
    "work.name": "uniform",
    "server_lr_schedule": "step",
    "batch_size": "8",
    "local_lr": "0.01",
    "server_lr": "0.1",
    "aggregation": "samples",
    "buffers": "server",
    "algorithm": "{name: fedprox}",
    "availability.name": "markov",
    "faults.kind": "nan",
    "faults.reject_nonfinite": "true",
    "faults.workers": "fixed",
    "compression.name": "topk",
    "evaluation.every": "3",
    "data.worker_test_fraction": "0.2",
    "evaluation.targets": "[0.5]",
    "evaluation.metrics": "[macro_f1]",
    "precision": "float64",
    "tf32": "true",
}
OF_GRADMA = {
    "algorithm.qp.solver": "clarabel",
    "algorithm.qp.scope": "tensor",
    "algorithm.qp.worker_margin": "0.1",
    "algorithm.qp.server_margin": "0.1",
    "algorithm.qp.drop_threshold": "0.1",
    "algorithm.memory_policy": "fifo",
}


TESTED = "point=evaluation.workers=true data.worker_test_fraction=0.1"
SWITCHED = {
    "data.dirichlet_omega": ("0.5", "data.partition=dirichlet", "data.partition=iid"),
    "data.shards_per_worker": ("5", "data.partition=shards", "data.partition=dirichlet"),
    "availability.failure_probability": ("0.2", "availability.name=bernoulli", "availability.name=markov"),
    "availability.leave_probability": ("0.2", "availability.name=markov", "availability.name=bernoulli"),
    "availability.return_probability": ("0.2", "availability.name=markov", "availability.name=always"),
    "data.classes_per_worker": ("3", "data.partition=classes", "data.partition=shards"),
    "data.quantity_sizes": ("power_law", "data.partition=quantity", "data.partition=iid"),
    "data.quantity_spread": ("0.5", "data.partition=quantity", "data.partition=iid"),
    "faults.probability": ("0.2", "faults.kind=nan", "faults.kind=none"),
    "local_lr_decay": ("0.5", "local_lr_schedule=exponential", "local_lr_schedule=cosine"),
    "local_lr_every": ("5", "local_lr_schedule=step", "local_lr_schedule=exponential"),
    "local_lr_floor": ("0.1", "local_lr_schedule=cosine", "local_lr_schedule=step"),
    "server_lr_decay": ("0.5", "server_lr_schedule=step", "server_lr_schedule=constant"),
    "server_lr_every": ("5", "server_lr_schedule=step", "server_lr_schedule=exponential"),
    "server_lr_floor": ("0.1", "server_lr_schedule=cosine", "server_lr_schedule=constant"),
    "work.straggler_share": ("0.2", "work.name=uniform", "work.name=by_speed"),
    "work.speed_spread": ("0.2", "work.name=by_speed", "work.name=fixed"),
    "evaluation.workers_every": ("5", TESTED, "evaluation.workers=false"),
    "evaluation.worker_samples": ("training", TESTED, "evaluation.workers=false"),
    "evaluation.each_worker": ("true", TESTED, "evaluation.workers=false"),
    "evaluation.finetune_steps": ("5", TESTED, "evaluation.workers=false"),
    "faults.scale": ("7", "faults.kind=huge", "faults.kind=nan"),
    "faults.std": ("7", "faults.kind=gaussian", "faults.kind=nan"),
    "faults.value": ("7", "faults.kind=same_value", "faults.kind=nan"),
    "faults.deviations": ("7", "faults.kind=alie", "faults.kind=nan"),
    "compression.fraction": ("0.5", "compression.name=topk", "compression.name=quantise"),
    "compression.bits": ("4", "compression.name=quantise", "compression.name=topk"),
    "compression.error_feedback": ("false", "compression.name=topk", "compression.name=none"),
}
"""Key -> (another value, the word under which it counts, a word under which it does not)."""


OF_PARTITIONS = {"data.partition_file", "data.partition_sha256", "data.partition_options"}
"""They need a file or a plugin: tests/data/test_partition_file.py and test_partition.py try them."""


def test_these_lists_name_every_key():
    elsewhere = {"evaluation.workers", *OF_PARTITIONS}
    assert PLACEMENT.keys() | IDENTITY.keys() | SWITCHED.keys() | elsewhere == known_keys().keys()
    switched = {key for key, field in known_keys().items() if condition(field)}
    assert switched - OF_PARTITIONS == SWITCHED.keys()


@pytest.mark.parametrize("key", PLACEMENT)
def test_where_and_how_a_run_is_carried_out_does_not_change_its_id(key):
    for algorithm in ("fedavg", "gradma"):
        plain = spec_of(f"algorithm.name={algorithm}")
        placed = spec_of(f"algorithm.name={algorithm}", f"{key}={PLACEMENT[key]}")
        assert (placed.run_id, placed.group_id) == (plain.run_id, plain.group_id)


def test_fields_that_place_a_run_are_those_readers_of_runs_know():
    found = {
        f"algorithm.{n}" for _, kind in ALGORITHMS.items() for n, field in walk(kind) if not enters_identity(field)
    }
    assert found == set(PLACEMENT_FIELDS)
    assert identifier("algorithm.name=gradma", "algorithm.memory_device=cpu", "algorithm.memory_shard=true") == (
        identifier("algorithm.name=gradma")
    )


@pytest.mark.parametrize("key", IDENTITY)
def test_what_the_experiment_is_changes_its_id(key):
    assert identifier(f"{key}={IDENTITY[key]}") != identifier()
    assert (spec_of(f"{key}={IDENTITY[key]}").group_id == spec_of().group_id) == (key == "seed")


def test_scoring_workers_changes_the_id():
    assert len({identifier(TESTED), identifier("data.worker_test_fraction=0.1"), identifier()}) == 3


def test_keys_that_came_later_leave_the_ids_of_runs_without_them():
    """Ids of runs from before there were schedules, momentum, epochs and unequal work."""
    assert identifier() == "ff679b545b8b"
    assert identifier("algorithm.name=scaffold", "scenario=mnist_w0.01_s10") == "3f0954bea04c"
    assert identifier("local_momentum=0", "local_epochs=null", "work.name=fixed") == identifier()


def test_epochs_take_the_place_of_the_default_steps():
    assert (resolved("local_epochs=2").local_steps, resolved("local_epochs=2").local_epochs) == (None, 2)
    for args in (["local_epochs=2", "local_steps=5"], ["local_steps=null"]):
        with pytest.raises(UserError, match=r"local_steps=\w+ with local_epochs=\w+: give one of them"):
            resolved(*args)
    again = resolved("local_epochs=2")
    assert resolve(again).run_id == identifier("local_epochs=2", "local_steps=null")


@pytest.mark.parametrize("key", OF_GRADMA)
def test_options_of_gradma_change_its_id_and_are_refused_elsewhere(key):
    word = f"{key}={OF_GRADMA[key]}"
    assert identifier("algorithm.name=gradma", word) != identifier("algorithm.name=gradma")
    with pytest.raises(UserError, match=f"{key}=.*: fedavg has no such field; it has none; gradma.* have it"):
        resolved(word)


def test_each_side_of_gradma_has_its_own_options():
    fields = {name: set(dict(walk(base.get(name)))) for name in ("gradma", "gradma_w", "gradma_s")}
    assert fields["gradma"] == fields["gradma_w"] | fields["gradma_s"]
    assert fields["gradma_w"] == {"previous_model", "qp.solver", "qp.scope", "qp.log_errors", "qp.worker_margin"}
    assert "qp.worker_margin" not in fields["gradma_s"]


@pytest.mark.parametrize("key", SWITCHED)
def test_a_key_counts_only_while_another_has_not_switched_it_off(key):
    value, on, off = SWITCHED[key]
    assert identifier(on, f"{key}={value}") != identifier(on)
    assert identifier(off, f"{key}={value}") == identifier(off)


def test_equal_experiments_given_in_different_ways_have_one_id(tmp_path):
    args = ["data.name=mnist", "algorithm.name=fedprox", "algorithm.mu=1", "local_lr=0.10", "num_rounds=500"]
    file = tmp_path / "config.yaml"
    file.write_text(
        yaml.safe_dump({"data": {"name": "mnist"}, "algorithm": {"name": "fedprox", "mu": 1.0}, "local_lr": "1e-1"})
    )
    ways = [
        spec_of(*args),
        spec_of(*reversed(args)),
        resolve(compose([], [file])),
        spec_of("point=" + " ".join(args)),
        resolve(compose(["algorithm={name: fedprox, mu: 1e0}", "data.name=mnist", "aggregation=uniform"])),
    ]
    assert len({way.run_id for way in ways}) == 1
    printed = tmp_path / "printed.yaml"
    printed.write_text(yaml.safe_dump(to_dict(ways[0].config)))
    assert resolve(compose([], [printed])).run_id == ways[0].run_id


@pytest.mark.parametrize("name", base.names())
def test_a_default_said_aloud_does_not_change_the_id(name):
    fields = [(key, default_of(field)) for key, field in walk(base.get(name))]
    args = [f"algorithm.{key}={'null' if value is None else value}" for key, value in fields]
    chosen = (f"algorithm.name={name}", *needed((f"algorithm.name={name}",)))
    assert identifier(*chosen, *args) == identifier(*chosen)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["data.name=minst"], "data.name=minst is not known; allowed: .*; did you mean 'mnist'"),
        (["algorithm.name=fedporx"], "algorithm.name=fedporx is not known; allowed: .*; did you mean 'fedproxm?'"),
        (["model.name=lenet"], "model.name=lenet is not known; allowed: .*; did you mean 'lenet5'"),
        (["algorithm.mu=1"], "algorithm.mu=1: fedavg has no such field; it has none; fedprox, .* have it"),
        (
            ["algorithm.name=gradma", "algorithm.memory_sise=9"],
            "algorithm.memory_sise=9: gradma has no such field; it has .*; did you mean 'memory_size'",
        ),
        (["algorithm.name=fedprox", "algorithm.mu=x"], "algorithm.mu=x has the wrong type; expected float"),
        (["algorithm.name=fedprox", "algorithm.mu="], "algorithm.mu=null has the wrong type; expected float"),
        (["algorithm.name=fedprox", "algorithm.mu={a: 1}"], "algorithm.mu={'a': 1} has the wrong type; expected float"),
        (["algorithm.name=fedprox", "algorithm.mu=-1"], "algorithm.mu=-1.0 is not allowed; it must be >= 0"),
        (
            ["algorithm.name=fedprox", "algorithm.mu=nan"],
            "algorithm.mu=nan is not allowed; it must be a finite number >= 0",
        ),
        (
            ["algorithm.name=gradma", "algorithm.memory_size=5"],
            "algorithm.memory_size=5 is not allowed; .* cohort_size=10 and num_workers=100",
        ),
        (
            ["algorithm.name=gradma", "algorithm.memory_size=101"],
            "algorithm.memory_size=101 is not allowed; .* num_workers=100",
        ),
        (
            ["algorithm.name=gradma", "algorithm.qp.scop=global"],
            "algorithm.qp.scop=global: gradma has no such field; it has .*; did you mean 'qp.scope'",
        ),
        (
            ["algorithm.name=gradma", "algorithm.qp.scope=locla"],
            "algorithm.qp.scope=locla is not allowed; allowed: global \\| tensor",
        ),
        (
            ["algorithm.name=gradma", "algorithm.qp=tensor"],
            "algorithm.qp=tensor has the wrong type; algorithm.qp is a group of keys",
        ),
        (
            ["algorithm.name=gradma", "algorithm.memory_policy=lru"],
            "algorithm.memory_policy=lru is not known; allowed: fifo, .*",
        ),
        (
            ["algorithm.name=gradma_w", "algorithm.qp.server_margin=0.1"],
            "algorithm.qp.server_margin=0.1: gradma_w has no such field; .*; gradma, gradma_s have it",
        ),
        (["plugins=[no_such_module]"], r"plugins=\[no_such_module\] cannot be imported"),
        (["plugins=['']"], r"plugins=\[\] cannot be imported"),
        (["plugins=[.x]"], r"plugins=\[.x\] cannot be imported"),
    ],
)
def test_names_and_hyper_parameters_are_checked_before_any_work(args, message):
    with pytest.raises(UserError, match=f"^{message}"):
        resolved(*args)


def test_a_sweep_may_drop_fields_that_other_algorithms_have():
    given = compose(["algorithm.name=fedavg", "algorithm.mu=0.5", "algorithm.qp.scope=tensor"])
    assert resolve(given, drop_unused=True).run_id == identifier()
    with pytest.raises(UserError, match="no such field"):
        resolve(compose(["algorithm.zeta=1"]), drop_unused=True)
    with pytest.raises(UserError, match="is a group of keys"):
        resolve(compose(["algorithm.name=gradma", "algorithm.qp=tensor"]), drop_unused=True)


def test_presets_apply_to_the_algorithms_that_declare_them():
    released = resolved("preset=released", "algorithm.name=gradma")
    assert (released.aggregation, released.algorithm["qp"]["scope"]) == ("samples", "tensor")
    assert resolved("preset=released").algorithm == {"name": "fedavg"}
    assert resolved("preset=released", "algorithm.name=gradma", "algorithm.qp.scope=global").algorithm["qp"] == {
        **released.algorithm["qp"],
        "scope": "global",
    }
    assert resolved("preset=released", "point=algorithm.name=gradma").algorithm == released.algorithm


def test_an_algorithm_may_declare_groups_conditions_and_presets_of_its_own():
    @dataclass(frozen=True)
    class Inner:
        kind: str = option("plain", "which", choices=("plain", "scaled"))
        scale: float = option(1.0, "by how much", when=("algorithm.inner.kind", "scaled"))

    try:

        @dataclass(eq=False)
        class Grouped(base.Algorithm, name="grouped"):
            """FedAvg with options."""

            rate: float = option(0.1, "a rate", presets={"released": 0.5})
            inner: Inner = group(Inner, "nested")

        assert resolved("algorithm.name=grouped", "preset=released").algorithm == {
            "name": "grouped",
            "rate": 0.5,
            "inner": {"kind": "plain", "scale": 1.0},
        }
        plain, scaled = "algorithm.inner.kind=plain", "algorithm.inner.kind=scaled"
        name, scale = "algorithm.name=grouped", "algorithm.inner.scale=3"
        assert identifier(name, plain, scale) == identifier(name)
        assert identifier(name, scaled, scale) != identifier(name, scaled)
        assert "algorithm.inner.scale" not in identity(resolved(name))
    finally:
        ALGORITHMS._entries.pop("grouped", None)


@pytest.mark.parametrize("name", ["gradma", "gradma_s"])
def test_the_default_memory_has_a_slot_for_every_worker_up_to_the_papers_100(name):
    def size(*args):
        return resolve(compose([f"algorithm.name={name}", *args])).config.algorithm["memory_size"]

    assert (size("num_workers=20"), size(), size("num_workers=150")) == (20, 100, 100)
    assert (size("algorithm.memory_size=0"), size("num_workers=20", "algorithm.memory_size=null")) == (0, 20)
    with pytest.raises(UserError, match=r"algorithm\.memory_size=100 is not allowed.*num_workers=20"):
        size("num_workers=20", "algorithm.memory_size=100")


def test_a_memory_of_100_by_default_or_given_is_one_run_and_has_the_id_it_always_had():
    args = ["algorithm.name=gradma"]
    ids = {resolve(compose([*args, *more])).run_id for more in ([], ["algorithm.memory_size=100"])}
    assert ids == {"3b68db347dfd"}
    assert resolve(compose(["algorithm.name=gradma_s", "num_workers=150", "data.name=mnist"])).run_id == "ae596063136f"
