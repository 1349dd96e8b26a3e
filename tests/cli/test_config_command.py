"""``config`` prints what a run would be, in a form that a run takes back."""

import yaml

from fl_platform.cli import main
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import to_dict


def test_it_prints_every_resolved_key_and_the_ids(capsys):
    args = ["data.name=mnist", "algorithm.name=gradma", "seed=3"]
    assert main(["config", *args]) == 0
    printed = capsys.readouterr().out
    spec = resolve(compose(args))
    assert yaml.safe_load(printed) == to_dict(spec.config)
    assert printed.endswith(f"# run {spec.run_id}, group {spec.group_id}\n")
    assert "  shards_per_worker: 2  # only with data.partition=shards\n" in printed


def test_what_it_prints_can_be_given_back(capsys, tmp_path):
    main(["config", "scenario=cifar10_w0.1_s10", "algorithm.name=moon", "local_lr=1e-3"])
    first = capsys.readouterr().out
    (tmp_path / "printed.yaml").write_text(first)
    main(["config", "--config", str(tmp_path / "printed.yaml")])
    assert capsys.readouterr().out == first


def test_it_takes_keys_as_the_agent_writes_them(capsys):
    main(["config", "--seed=3", "--algorithm.name=fedprox"])
    assert "seed: 3" in capsys.readouterr().out


def test_bad_input_is_one_sentence_and_code_2(capsys):
    assert main(["config", "seeed=3"]) == 2
    assert capsys.readouterr().err == "fl_platform: unknown key 'seeed'; did you mean 'seed'?\n"
