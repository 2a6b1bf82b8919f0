"""What the process of a stage says of a disk that was full for a moment: nothing of the model, nothing of the compiler."""

import errno
import json
import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler_service.compiler.fallback import typed_faults
from compiler_service.stages.outcome import NO_SPACE, RESULT_FILE
from compiler_service.stages.process import Progress, answer
from compiler_service.stages.runner import REQUEST_FILE
from shared_ir.storage.faults import told


def refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


def as_it_comes(request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    refuse(request["errno"])
    return {}


def in_the_compiler(request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    with typed_faults():
        return as_it_comes(request, progress)


def told_of_a_file(request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    with told("an artifact cannot be written"):
        return as_it_comes(request, progress)


def status_of(work: Path, number: int, act: Any) -> int | None:
    """Of a process of its own, which ``answer`` takes rights away from."""
    (work / REQUEST_FILE).write_text(json.dumps({"errno": number, "limits": {"memory": 1 << 30}}))
    reader, writer = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(work, writer, act))
    process.start()
    os.close(writer)
    os.close(reader)
    process.join()
    return process.exitcode


def _answer(work: Path, descriptor: int, act: Any) -> None:
    os._exit(answer(work, descriptor, act))


@pytest.mark.parametrize("act", [as_it_comes, in_the_compiler, told_of_a_file])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_by_how_the_process_ends(tmp_path: Path, number: int, act: Any) -> None:
    assert status_of(tmp_path, number, act) == NO_SPACE
    assert not (tmp_path / RESULT_FILE).exists()


def test_a_file_that_grows_beyond_its_limit_is_an_answer(tmp_path: Path) -> None:
    assert status_of(tmp_path, errno.EFBIG, told_of_a_file) == 0
    assert json.loads((tmp_path / RESULT_FILE).read_text())["error"]["code"] == "DISK_FULL"
