"""When a stage has ended, nothing that it started goes on: what it left behind is read then, and mapped."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from compiler_service.boundary.policy import Policy
from compiler_service.boundary.toolchain import toolchain
from compiler_service.stages import kept
from compiler_service.stages.kept import KeptNursery
from compiler_service.stages.runner import BOUNDARY_FILE, REQUEST_FILE, StageLimits, StageRunner

LINGERING = str(Path(__file__).with_name("lingering.py"))
ROOT = Path(__file__).parents[3]
LIMITS = StageLimits(memory=8 << 30, seconds=60)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stages run on Linux")


@pytest.mark.usefixtures("no_namespaces")
def test_nothing_of_a_stage_goes_on_without_a_process_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "work").mkdir()
    request: dict[str, Any] = {"stage": "check", "source": None, "options": {}}
    stages = StageRunner((sys.executable, LINGERING), LIMITS)
    group = stages.run(tmp_path / "work", request, lambda _: None, lambda: False)["group"]
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_nothing_of_a_child_of_the_nursery_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last end of what it prints to is closed."""
    monkeypatch.setattr(kept, "_COMMAND", (sys.executable, LINGERING))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    policy = Policy((*toolchain(), (str(tmp_path), "write")))
    (tmp_path / REQUEST_FILE).write_text(json.dumps({"stage": "check", "limits": {"memory": 1 << 40}}))
    (tmp_path / BOUNDARY_FILE).write_bytes(policy.to_json())
    reader, writer = os.pipe()
    nursery = KeptNursery()
    try:
        child = nursery.start(tmp_path, writer, writer)
        os.close(writer)
        os.set_blocking(reader, False)
        with child.leash:
            status = child.wait()
        assert os.read(reader, 65536) == b""
        assert status == 0
    finally:
        nursery.close()
        os.close(reader)
