"""`ingot up` as its users start it: a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.platform_process import PlatformProcess


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """Everything running, uploads limited to a megabyte; stopped with SIGTERM, which must leave nothing."""
    running = PlatformProcess(tmp_path_factory.mktemp("home"), INGOT_MAX_MODEL_BYTES="1000000")
    try:
        yield running
        assert running.stop() == 0
        assert running.left_over() == []
    finally:
        running.kill()
