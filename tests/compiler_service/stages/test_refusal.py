"""Only the launcher says that a part of the boundary is missing: what it starts has a status of its own, and no more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from compiler_service.boundary.launch import REFUSED
from compiler_service.boundary.parts import BoundaryPart
from compiler_service.boundary.state import standing
from compiler_service.stages.runner import StageLimits, StageRunner
from shared_ir.errors import ErrorCode, IngotError

PROGRAM = f"""
import contextlib, os, sys
for descriptor in range(3, 64):
    with contextlib.suppress(OSError):
        os.write(descriptor, b"!")
sys.exit({REFUSED})
"""


def failure(tmp_path: Path, required: tuple[BoundaryPart, ...]) -> IngotError:
    (tmp_path / "work").mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    request: dict[str, Any] = {"stage": "check", "source": None, "options": {}}
    runner = StageRunner((sys.executable, str(program)), StageLimits(memory=8 << 30, seconds=60), required=required)
    with pytest.raises(IngotError) as caught:
        runner.run(tmp_path / "work", request, lambda _: None, lambda: False)
    return caught.value


def test_a_stage_does_not_say_that_it_was_refused(tmp_path: Path) -> None:
    """Its job would be tried again and again."""
    if BoundaryPart.LIMITS in standing().missing:
        pytest.skip(f"this kernel lacks a part of the boundary: {standing()}")
    error = failure(tmp_path, (BoundaryPart.LIMITS,))
    assert error.code is ErrorCode.COMPILER_FAULT
    assert f"exit status {REFUSED}" in error.message


@pytest.mark.usefixtures("no_namespaces")
def test_a_stage_that_is_refused_is_said_to_be(tmp_path: Path) -> None:
    error = failure(tmp_path, (BoundaryPart.PROCESSES,))
    assert error.code is ErrorCode.UNAVAILABLE
    assert error.field == "INGOT_SANDBOX"
