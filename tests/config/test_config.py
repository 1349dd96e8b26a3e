"""Words and files become a checked configuration, or one sentence that says what to change."""

import contextlib
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_platform.config.compose import check_key, compose, parse_arguments, synonyms
from fl_platform.config.migrate import MOVED
from fl_platform.config.options import default_of, walk
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import Config, known_keys, to_dict
from fl_platform.errors import UserError
from fl_platform.paper.scenarios import COLUMNS


def refusal(*args: str, files: list[Path] | None = None) -> str:
    """The sentence that refuses these args."""
    with pytest.raises(UserError) as caught:
        compose(list(args), files)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_text_stays_as_it_was_typed():
    """YAML reads the word on as true, 007 as 7 and 1e3 as 1000.0."""
    config = compose(["output.dir=on", "tracking.project=007", "data.root=1e3", "tracking.group=null"])
    assert (config.output.dir, config.tracking.project, config.data.root) == ("on", "007", "1e3")
    assert config.tracking.group is None


def test_no_words_give_the_defaults():
    config = compose([])
    for key, field in known_keys().items():
        value = to_dict(config)
        for part in key.split("."):
            value = value[part]
        assert value == default_of(field), key


def test_words_are_typed():
    config = compose(
        [
            "seed=3",
            "local_lr=1e-3",
            "data.name=mnist",
            "evaluation.targets=[0.5, 1]",
            "tracking.tags=[a, b]",
            "data.root=null",
        ]
    )
    assert (config.seed, config.local_lr, config.data.name) == (3, 1e-3, "mnist")
    assert (config.evaluation.targets, config.tracking.tags, config.data.root) == ([0.5, 1.0], ["a", "b"], None)
    assert type(compose(["local_lr=1"]).local_lr) is float


def test_later_words_win_and_hyphens_of_the_agent_are_taken():
    assert compose(["seed=1", "--seed=2"]).seed == 2


def test_a_group_may_be_given_as_a_mapping():
    config = compose(["data={name: mnist, dirichlet_omega: 0.5}", "data.partition=iid", "data={}"])
    assert (config.data.name, config.data.dirichlet_omega, config.data.partition) == ("mnist", 0.5, "iid")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sed=1", "unknown key 'sed'; did you mean 'seed'?"),
        ("a.b.c=1", "unknown key 'a.b.c'; `python -m fl_platform config` prints all keys"),
        ("data={nme: x}", "unknown key 'data.nme'; did you mean 'data.name'?"),
        ("seed.x=1", "unknown key 'seed.x'; did you mean 'seed'?"),
        ("data..name=x", "unknown key 'data..name'; did you mean 'data.name'?"),
        ("algorithm.=1", "unknown key 'algorithm.'; did you mean 'algorithm'?"),
        ("algorithm[name]=x", "unknown key 'algorithm[name]'; did you mean 'algorithm'?"),
        ("sééd=1", "unknown key 'sééd'; `python -m fl_platform config` prints all keys"),
        ("qp.scope=tensor", "unknown key 'qp.scope'; it is now algorithm.qp.scope"),
        (
            "memory={policy: fifo}",
            "unknown key 'memory'; its keys are now algorithm.memory_policy, algorithm.memory_device, "
            "algorithm.memory_shard",
        ),
        ("=3", "'=3' is not of the form key=value"),
        ("seed", "'seed' is not of the form key=value"),
        ("seed=x", "seed=x has the wrong type; expected int"),
        ("seed=1.5", "seed=1.5 has the wrong type; expected int"),
        ("seed=true", "seed=True has the wrong type; expected int"),
        ("evaluation.each_worker=7", "evaluation.each_worker=7 has the wrong type; expected bool"),
        ("evaluation.each_worker='-1'", "evaluation.each_worker=-1 has the wrong type; expected bool"),
        ("seed=-1", "seed=-1 is not allowed; it must be >= 0"),
        (
            "seed=99999999999999999999",
            "seed=99999999999999999999 is not allowed; it must be a number of at most 63 bits",
        ),
        ("local_lr=", "local_lr=null has the wrong type; expected float"),
        ("local_lr=nan", "local_lr=nan is not allowed; it must be a finite number > 0"),
        ("local_lr=.inf", "local_lr=inf is not allowed; it must be a finite number > 0"),
        ("local_lr=-0.1", "local_lr=-0.1 is not allowed; it must be > 0"),
        ("local_lr=" + "9" * 400, f"local_lr={'9' * 400} has the wrong type; expected float"),
        ("local_lr=[[", "local_lr=[[ cannot be read: the value is not valid YAML"),
        (
            "local_lr=!!python/name:os.system",
            "local_lr=!!python/name:os.system cannot be read: the value is not valid YAML",
        ),
        ("data=3", "data=3 has the wrong type; data is a group of keys"),
        ("data=mnist", "data=mnist has the wrong type; data is a group of keys; did you mean data.name=mnist?"),
        ("data=", "data=null has the wrong type; data is a group of keys"),
        (
            "algorithm=fedavg",
            "algorithm=fedavg has the wrong type; algorithm is a group of keys; did you mean algorithm.name=fedavg?",
        ),
        ("algorithm.name=[]", "algorithm.name=[] is not a name; see `python -m fl_platform list algorithms`"),
        ("data.dirichlet_omega=0", "data.dirichlet_omega=0.0 is not allowed; it must be > 0"),
        ("data.validation_fraction=1", "data.validation_fraction=1.0 is not allowed; it must be >= 0 and < 1"),
        (
            "evaluation.targets=0.5",
            "evaluation.targets=0.5 has the wrong type; expected list[float | int | str] | None",
        ),
        ("evaluation.targets=[1.5]", "evaluation.targets=[1.5] is not allowed; it must be > 0 and <= 1"),
        (
            "evaluation.targets=[perplexity>=4]",
            "evaluation.targets: 'perplexity>=4' would be reached by getting worse; write 'perplexity<=4'",
        ),
        (
            "evaluation.targets=[macro_f>=0.4]",
            "evaluation.targets: 'macro_f>=0.4' names no metric; there is accuracy, loss, macro_f1, balanced_accuracy, "
            "perplexity, calibration_error, epsilon; did you mean 'macro_f1'?",
        ),
        (
            "evaluation.targets=[much]",
            "evaluation.targets: 'much' is no target; write an accuracy such as 0.9, or 'perplexity<=4.5'",
        ),
        (
            "evaluation.targets=[true]",
            "evaluation.targets=[True] has the wrong type; expected list[float | int | str] | None",
        ),
        (
            "evaluation.targets=[macro_f1>=2]",
            "evaluation.targets=[macro_f1>=2] is not allowed; it must be > 0 and <= 1",
        ),
        (
            "tracking.mode=off",
            "tracking.mode=off is not allowed; allowed: offline | online | disabled; did you mean 'offline'?",
        ),
        ("preset=papr", "preset=papr is not known; allowed: paper, released; did you mean 'paper'?"),
        ("point=seed", "'seed' is not of the form key=value"),
        ("point=tracking.group='a", "point=tracking.group='a cannot be read: No closing quotation"),
        (
            "point=preset=released",
            "point=preset=released: preset=released has no effect in there; give it as a key of its own",
        ),
    ],
)
def test_a_bad_word_is_refused_in_one_sentence(word, message):
    assert refusal(word) == message


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["cohort_size=11", "num_workers=10"],
            "cohort_size=11 exceeds num_workers=10; a cohort has at most all workers",
        ),
        (
            ["batch_size=1"],
            "batch_size=1 with model.norm=batch: BatchNorm needs at least 2 samples; "
            "use batch_size>=2 or model.norm=group | none",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(args, message):
    assert refusal(*args) == message


@pytest.mark.parametrize(
    "key", ["seed", "local_lr", "data.name", "algorithm.name", "algorithm.mu", "output.dir", "point", "model.options.a"]
)
@pytest.mark.parametrize(
    "value", ["${seed}", "${oc.env:HOME}", "x${oc.env:HOME}y", "[1, '${oc.env:HOME}']", "{a: '${seed}'}", "???"]
)
def test_nothing_is_looked_up_in_the_environment_or_elsewhere(key, value, monkeypatch):
    monkeypatch.setenv("HOME", "/a-secret")
    message = refusal(f"{key}={value}")
    assert "a-secret" not in message
    assert key in message


FILES = {
    "list": (b"- seed\n", "holds a list, not keys and values"),
    "text": (b"seed\n", "unknown key|seed=null has the wrong type"),
    "number": (b"3\n", "cannot be read: .*int"),
    "not utf-8": (b"seed: \xff\xfe", "cannot be read: .*utf-8"),
    "not yaml": (b"seed: [\n", "cannot be read: .*line 2"),
    "nul": (b"seed: \x00", "cannot be read"),
    "twice": (b"seed: 1\nseed: 2\n", "cannot be read: .*duplicate key seed"),
    "twice in two ways": (b"data: {name: a}\ndata.name: b\n", "data.name=b is given twice; give it once"),
    "a number as key": (b"3: 4\n", "'3' is not a key: it is a int, keys are words"),
    "a nested number as key": (b"model: {options: {1: 2}}\n", "'model.options.1' is not a key"),
    "a list as key": (b"? [a]\n: 1\n", "cannot be read"),
    "an alias to itself": (b"data: &a\n  name: *a\n", "cannot be read"),
    "a lookup": (b"data: {name: '${oc.env:HOME}'}\n", r"data.name=\$\{oc.env:HOME\} is not allowed"),
    "a set": (b"seed: !!set {a}\n", "cannot be read"),
    "bytes": (b"seed: !!binary aGk=\n", "seed=b'hi' is a bytes; write a number"),
    "unknown": (b"data: {nmae: x}\n", "unknown key 'data.nmae'; did you mean 'data.name'"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_bad_file_is_refused_by_name(kind, tmp_path):
    content, message = FILES[kind]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    text = refusal(files=[path])
    assert re.search(message, text)
    assert kind in ("text", "bytes") or str(path) in text


def test_a_file_that_is_not_there_or_is_a_directory_is_refused(tmp_path):
    assert refusal(files=[tmp_path / "none.yaml"]) == f"--config {tmp_path}/none.yaml: no such file"
    assert refusal(files=[tmp_path]).startswith(f"--config {tmp_path} cannot be read: ")


def test_files_in_order_then_words(tmp_path):
    (tmp_path / "a.yaml").write_text("seed: 1\nlocal_lr: 1e-3\ndata: {name: mnist}\n")
    (tmp_path / "b.yaml").write_text("seed: 2\ndata.partition: iid\n")
    (tmp_path / "empty.yaml").write_text("")
    config = compose(["num_workers=50"], [tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "empty.yaml"])
    assert (config.seed, config.local_lr, config.data.name, config.data.partition) == (2, 1e-3, "mnist", "iid")
    assert compose(["seed=3"], [tmp_path / "a.yaml"]).seed == 3


def test_numbers_read_the_same_from_a_file_and_from_a_word(tmp_path):
    (tmp_path / "a.yaml").write_text("model: {options: {rate: 1e-3, day: 2020-01-01}}\n")
    assert compose([], [tmp_path / "a.yaml"]) == compose(["model.options.rate=1e-3", "model.options.day=2020-01-01"])


def test_sources_from_weakest_to_strongest(tmp_path):
    chosen = tmp_path / "chosen.yaml"
    entry = {"keys": {"local_lr": 0.3, "server_lr": 0.3, "batch_size": 30, "cohort_size": 7, "aggregation": "samples"}}
    chosen.write_text(yaml.safe_dump({"chosen": {"mnist_w1_s10": {"fedavg": entry}}}))
    (tmp_path / "file.yaml").write_text("batch_size: 50\nlocal_steps: 50\n")
    args = [
        "preset=paper",
        "scenario=mnist_w1_s10",
        f"chosen={chosen}",
        "point=server_lr=0.4 batch_size=40",
        "local_steps=6",
    ]
    config = compose(args, [tmp_path / "file.yaml"])
    assert config.num_rounds == 500  # the scenario, over a default
    assert config.cohort_size == 7  # chosen, over the scenario
    assert config.aggregation == "samples"  # chosen, over the preset
    assert config.local_lr == 0.3
    assert config.server_lr == 0.4  # the point, over chosen
    assert config.batch_size == 50  # a file, over the point
    assert config.local_steps == 6  # a word, over a file


def test_a_preset_sets_what_options_declare_for_it():
    assert compose(["preset=released"]).aggregation == "samples"
    assert compose(["preset=released", "aggregation=uniform"]).aggregation == "uniform"
    assert compose(["preset=paper"]) == compose([])


@pytest.mark.parametrize("name", COLUMNS)
def test_every_scenario_composes(name):
    config = compose([f"scenario={name}"])
    assert f"{config.data.name}_w{config.data.dirichlet_omega:g}_s{config.cohort_size}" == name


@pytest.mark.parametrize(
    "content",
    [
        "",
        "chosen: [1]",
        "chosen: {mnist_w1_s10: 3}",
        "chosen: {mnist_w1_s10: {fedavg: []}}",
        "chosen: {mnist_w1_s10: {fedavg: {keys: 3}}}",
    ],
)
def test_a_chosen_file_without_an_entry_is_said_aloud(content, tmp_path, capsys):
    (tmp_path / "chosen.yaml").write_text(content)
    config = compose([f"chosen={tmp_path}/chosen.yaml", "scenario=mnist_w1_s10"])
    assert config.local_lr == Config().local_lr
    assert "has nothing for fedavg in mnist_w1_s10: defaults are used" in capsys.readouterr().err


def test_a_chosen_file_cannot_name_further_sources(tmp_path):
    (tmp_path / "chosen.yaml").write_text("chosen: {mnist_w1_s10: {fedavg: {keys: {preset: released}}}}")
    message = refusal(f"chosen={tmp_path}/chosen.yaml", "scenario=mnist_w1_s10")
    assert "preset=released has no effect in there" in message


keys = st.one_of(
    st.sampled_from([*known_keys(), *MOVED, "data", "qp", "algorithm.mu", "trainer.devices", "model.options.a.b"]),
    st.text(max_size=12),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=4),
    st.dates(),
    st.sampled_from(
        [
            "${seed}",
            "${",
            "$",
            "???",
            "~",
            "1e999",
            "0x1f",
            "'",
            '"',
            "*a",
            "&a",
            "{",
            "[",
            "!!set",
            "fedprox",
            "digits",
        ]
    ),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3), max_leaves=5
)


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(st.text(max_size=20), st.builds("{}={}".format, keys, st.one_of(st.text(max_size=20), values))),
        max_size=3,
    )
)
def test_words_give_a_configuration_or_a_user_error(args):
    with contextlib.suppress(UserError):
        resolve(compose(args))


@settings(max_examples=100)
@given(st.dictionaries(keys | scalars, values, max_size=3))
def test_yaml_gives_a_configuration_or_a_user_error(tmp_path_factory, mapping):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(yaml.dump(mapping).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(UserError):
        resolve(compose([], [path]))


@settings(max_examples=100)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_bytes_as_a_file_give_a_configuration_or_a_user_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(UserError):
        compose([], [path])


@given(keys)
def test_every_known_key_passes_and_others_are_refused(key):
    groups = ("algorithm.", "trainer.", "model.options.")
    name = key.lstrip("-")  # as W&B writes its words
    if name in known_keys():
        check_key(name)
    elif not name.startswith(groups) and not any(known.startswith(f"{name}.") for known in known_keys()):
        with pytest.raises(UserError):
            parse_arguments([f"{key}=1"])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lr", "local_lr"),
        ("clients", "num_workers"),
        ("rounds", "num_rounds"),
        ("dataset", "data.name"),
        ("alpha", "data.dirichlet_omega"),
        ("Learning-Rate", "local_lr"),
        ("epochs", "num_rounds (federated rounds) or local_epochs (passes of a worker over its data per round)"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_the_key_it_means(word, meant):
    with pytest.raises(UserError, match=re.escape(f"unknown key '{word}'; it is called {meant} here")):
        compose([f"{word}=1"])


def test_every_synonym_leads_to_a_key_and_is_none_itself():
    keys = known_keys()
    fields = {f"algorithm.{name}" for _, kind in ALGORITHMS.items() for name, _ in walk(kind)}
    for word, meant in synonyms().items():
        assert word not in keys
        named = re.findall(r"[a-z_.]+(?= \()", meant) or [meant]
        assert {*named} <= {*keys, *fields, "algorithm.name"}, word
