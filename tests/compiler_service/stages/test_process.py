"""What the process of a stage says of a disk that was full for a moment: nothing of the model, nothing of the compiler."""

import errno
import json
import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler_service.compiler.fallback import at_a_level_that_works, typed_faults
from compiler_service.stages.outcome import NO_SPACE, RESULT_FILE
from compiler_service.stages.process import Progress, answer
from compiler_service.stages.runner import REQUEST_FILE
from shared_ir.errors import IngotError
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


def said_by_another_process(request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    """What it was raised from stays there."""
    try:
        return told_of_a_file(request, progress)
    except IngotError as error:
        raise IngotError.from_dict(error.to_dict()) from None


def below_a_level(request: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
    return at_a_level_that_works(lambda level: as_it_comes(request, progress), 3)[0]


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


@pytest.mark.parametrize("act", [as_it_comes, in_the_compiler, told_of_a_file, said_by_another_process, below_a_level])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_by_how_the_process_ends(tmp_path: Path, number: int, act: Any) -> None:
    assert status_of(tmp_path, number, act) == NO_SPACE
    assert not (tmp_path / RESULT_FILE).exists()


def test_a_file_that_grows_beyond_its_limit_is_an_answer(tmp_path: Path) -> None:
    assert status_of(tmp_path, errno.EFBIG, told_of_a_file) == 0
    assert json.loads((tmp_path / RESULT_FILE).read_text())["error"]["code"] == "RESOURCE_LIMIT"
