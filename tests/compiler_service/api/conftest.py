"""One running installation for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.installation import Client, Installation, installation


@pytest.fixture(name="running", scope="module")
def fixture_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home: Path = tmp_path_factory.mktemp("home")
    with installation(home, INGOT_MAX_MODEL_BYTES="100000") as running:
        running.start_server()
        running.start_worker()
        yield running


@pytest.fixture(name="client")
def fixture_client(running: Installation) -> Client:
    return running.client()
