"""A stage's process: its answers, its limits, and how it is stopped."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler_service.boundary.launch import REFUSED
from compiler_service.stages.outcome import _was_killed, killed_for_memory
from compiler_service.stages.runner import StageLimits, StageRunner, StoppedError
from shared_ir.artifact.exchange import read_artifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, target_to_dict
from tests.services.processes import ends, runs
from tests.services.toy_compiler import STAGE_COMMAND

LIMITS = StageLimits(memory=4 * 1024**3, seconds=30, file_size=2**20)


pytestmark = pytest.mark.usefixtures("toy_stages")


def build(
    tmp_path: Path, model: Any, limits: StageLimits = LIMITS, stop: threading.Event | None = None, stage: str = "build"
) -> list[Mapping[str, Any]]:
    """Run one stage; the messages it sent."""
    (tmp_path / "model").write_bytes(json.dumps(model).encode())
    (tmp_path / "records.json").write_bytes(b"")
    request = {
        "stage": stage,
        "source": {"model": str(tmp_path / "model"), "blobs": {}},
        "target": target_to_dict(PRESETS["x86-64-v3"][0]),
        "options": {},
    }
    messages: list[Mapping[str, Any]] = []
    stopped = stop or threading.Event()
    StageRunner(STAGE_COMMAND, limits).run(tmp_path, request, messages.append, stopped.is_set)
    return messages


def test_a_stage_answers_and_reports(tmp_path: Path) -> None:
    messages = build(tmp_path, {"name": "toy", "steps": 3})
    progress = [(m["stage"], m["done"], m["total"]) for m in messages if "stage" in m]
    assert progress == [("codegen", n, 3) for n in range(4)]
    assert {"log": "building toy"} in messages
    artifact = read_artifact(tmp_path / "artifact")
    assert artifact.manifest.name == "toy"
    assert artifact.report["pid"] != os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("error", ErrorCode.LIMIT_EXCEEDED, "too big"),
        ("raise", ErrorCode.COMPILER_FAULT, "KeyError: 'lost'"),
        ("abort", ErrorCode.COMPILER_FAULT, "SIGABRT"),
        ("memory", ErrorCode.RESOURCE_LIMIT, "memory"),
    ],
)
def test_failures_are_typed(tmp_path: Path, how: str, code: ErrorCode, text: str) -> None:
    with pytest.raises(IngotError, match=text) as caught:
        build(tmp_path, {"do": how})
    assert caught.value.code is code
    assert caught.value.remedy or how == "error"


@pytest.mark.parametrize("status", [1, 3, REFUSED, 127, 128, 129, 128 + 9, 128 + 24, 128 + 25, 255])
def test_a_status_is_no_signal(tmp_path: Path, status: int) -> None:
    with pytest.raises(IngotError, match="exit status") as caught:
        build(tmp_path, {"do": "leave", "status": status})
    assert caught.value.code is ErrorCode.COMPILER_FAULT


def test_who_kills_itself_is_not_said_to_have_used_up_the_memory(tmp_path: Path) -> None:
    before = killed_for_memory()
    with pytest.raises(IngotError) as caught:
        build(tmp_path, {"do": "kill"})
    assert caught.value.code is ErrorCode.STAGE_KILLED
    if before is not None and before == killed_for_memory():
        assert "nobody for want of memory" in caught.value.remedy


def test_what_the_kernel_did_is_said() -> None:
    def said(before: int | None, now: int | None) -> str:
        return _was_killed(before, now).remedy

    assert "ended processes for want of memory" in said(3, 4)
    assert "nobody" in said(3, 3)
    assert "Perhaps" in said(None, 4)
    assert "Perhaps" in said(4, None)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(IngotError) as caught:
        build(tmp_path, {"do": "file", "path": str(tmp_path / "big")})
    assert caught.value.code in (ErrorCode.RESOURCE_LIMIT, ErrorCode.COMPILER_FAULT)
    assert (tmp_path / "big").stat().st_size <= LIMITS.file_size


@pytest.mark.slow
def test_time_is_up_and_nothing_is_left_running(tmp_path: Path) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    with pytest.raises(IngotError, match="more time") as caught:
        build(tmp_path, {"do": "hang", "mark": mark}, StageLimits(seconds=10))
    assert caught.value.code is ErrorCode.RESOURCE_LIMIT
    assert ends(mark)


def test_stopping_kills_the_whole_group(tmp_path: Path) -> None:
    mark, stop = f"mark-{secrets.token_hex(8)}", threading.Event()

    def stop_when_it_hangs() -> None:
        while not runs(mark):
            time.sleep(0.02)
        time.sleep(0.1)
        stop.set()

    threading.Thread(target=stop_when_it_hangs, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(StoppedError):
        build(tmp_path, {"do": "hang", "mark": mark}, stop=stop)
    assert time.monotonic() - started < 20
    assert ends(mark)


def test_the_environment_holds_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGOT_REDIS_URL", "redis://secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    messages = build(tmp_path, {"do": "leak"})
    assert {"log": "{}"} in messages
    assert "secret" not in str(messages)
