"""Commands expand exactly as the real ``wandb agent`` expands them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wandb.sdk.launch.sweeps import utils as agent

from fl_platform.errors import UserError
from fl_platform.sweeps.commands import expand, run_arguments

MACROS = [
    "args", "args_no_equals", "args_no_hyphens", "args_no_boolean_flags", "args_json", "args_append_hydra",
    "args_override_hydra", "program", "interpreter", "env", "unheard_of",
]  # fmt: skip
VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.none())


def expanded_by_agent(command: list[str], params: dict[str, object]) -> list[str]:
    """The loop of ``Agent._command_run`` over the agent's own tables."""
    macros = agent.create_sweep_command_args({"args": {key: {"value": value} for key, value in params.items()}})
    macros |= {"interpreter": ["python"], "program": ["train.py"], "env": ["/usr/bin/env"]}
    overrides: list[str] = []
    for part in agent.create_sweep_command(list(command)):
        overrides += (macros.get(part[2:-1]) or []) if part.startswith("${") and part.endswith("}") else [part]
    return overrides


@given(
    st.lists(
        st.sampled_from([*(f"${{{name}}}" for name in MACROS), "word", "home=${envvar:HOME}", "${envvar:NONE_X}"])
    ),
    st.dictionaries(st.from_regex(r"[a-z.]{1,6}", fullmatch=True), VALUES, max_size=3),
)
def test_expansion_is_the_agents(command: list[str], params: dict[str, object]) -> None:
    ours = expand(command, params, program="train.py", interpreter="python")
    assert ours == (expanded_by_agent(command, params) if command else [])


def test_environment_variables_fill_any_word() -> None:
    assert expand(["x=${envvar:HOME}/y"], {}) == [f"x={os.environ['HOME']}/y"]


def test_what_run_will_read() -> None:
    command = [
        "/usr/bin/env",
        "python",
        "-m",
        "fl_platform",
        "run",
        "--skip-finished",
        "--config",
        "a.yaml",
        "seed=1",
        "--mu=2",
    ]
    found = run_arguments([*command, "--drop-unused"])
    assert found.keys == ["seed=1", "mu=2"]
    assert found.config == [Path("a.yaml")]
    assert (found.drop_unused, found.skip_finished) == (True, True)


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("--no-such-flag", "is refused by `fl_platform run`: unrecognized arguments: --no-such-flag"),
        ("--config", "is refused by `fl_platform run`: argument --config: expected one argument"),
        ("--resume=abc", " has --resume abc; a trial goes on with --continue"),
    ],
)
def test_arguments_that_run_or_a_trial_cannot_take_are_refused(argument: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"^command.*{why}$"):
        run_arguments(["fl-platform", "run", "seed=1", argument])


def test_another_program_is_refused() -> None:
    with pytest.raises(UserError, match=r"^command=python train\.py run .* does not call `fl_platform run`"):
        run_arguments(["python", "train.py", "run", "a=1"])
