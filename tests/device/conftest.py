"""Trials of engines go to a cache of the tests' own; kernels in Triton are run by its interpreter."""

import os
from collections.abc import Iterator

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported


@pytest.fixture(autouse=True, scope="session")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from fl_platform.federation import engine_choice

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_choice, "CACHE", str(tmp_path_factory.mktemp("engine_trials")))
        yield
