"""The machine that the tests run on, as a target."""

from __future__ import annotations

import pytest

from compiler_service.compiler.codegen.toolchain.host import host_target
from shared_ir.machine.target import Target


@pytest.fixture(scope="session")
def host() -> Target:
    return host_target()
