"""The wheel, built once however many processes test it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.packaging.clean_environment import CleanEnvironment, build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = list(folder.glob("*.whl"))
        return found[0] if found else build_wheel(folder)


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], CleanEnvironment]]:
    """Makes an environment with one extra, or with the base alone. They are large, so none is kept."""
    made = []

    def make(extra: str) -> CleanEnvironment:
        made.append(tmp_path_factory.mktemp(extra or "base"))
        return CleanEnvironment.make(made[-1], wheel, extra)

    yield make
    for folder in made:
        shutil.rmtree(folder)
