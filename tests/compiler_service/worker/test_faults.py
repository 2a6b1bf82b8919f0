"""What passes by itself is what the worker sees, not what the process of a stage says of its machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from compiler_service.stages.outcome import NO_SPACE, how_it_died
from compiler_service.worker.faults import explain, pause
from shared_ir.errors import ErrorCode


def test_a_stage_that_says_the_disk_is_full_is_not_believed_where_there_is_room(tmp_path: Path) -> None:
    found = explain(how_it_died(NO_SPACE, 60.0, 1 << 20), tmp_path)
    assert found.code is ErrorCode.STAGE_KILLED
    assert [pause(found, tries) is None for tries in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_a_stage_that_ended_on_a_full_disk_is_tried_again_until_there_is_room(
    tmp_path: Path, reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "posix_fallocate", full)
    found = explain(how_it_died(NO_SPACE, 60.0, 1 << 20), tmp_path)
    assert found.code is ErrorCode.DISK_FULL
    assert pause(found, 30) is not None


def test_a_file_system_that_cannot_reserve_room_is_not_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(descriptor: int, start: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unknown)
    assert explain(ValueError("x"), tmp_path).code is ErrorCode.INTERNAL
