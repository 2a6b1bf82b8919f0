"""How a stage ended, read from what it left behind. The process that wrote it had read a foreign model: nothing in it is trusted."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from compiler_service.boundary.launch import REFUSED
from shared_ir.artifact.exchange import read_artifact
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.service_kit.status import visible

RESULT_FILE = "result.json"
NO_SPACE = 75
"""Exit status of a stage that could not write down how it went: EX_TEMPFAIL of sysexits.h. Who reads it looks whether that is so."""
MOST_RESULT_BYTES = 64 * 1024 * 1024
_MOST_FILES = 100_000
_MOST_TEXT_BYTES = 4000
"""Of each text of an error."""
_SMALLER = "Compile a smaller model, or give the machine or its cgroup more memory."


class StageError(IngotError):
    """What the process of a stage says went wrong. It had read a foreign model: of the machine that it ran on it tells nothing."""


class UnseenError(StageError):
    """What the process of a stage says of the machine, which its worker can look at."""


def read_result(work: Path) -> Mapping[str, Any]:
    """What a stage that ended well answers.

    Raises:
        StageError: what the stage raised.
        IngotError: COMPILER_FAULT where its folder holds what no stage leaves.
    """
    refuse_odd_files(work)
    path = work / RESULT_FILE
    if not path.is_file() or path.stat().st_size > MOST_RESULT_BYTES:
        raise senseless("there is no answer, or one that is too long")
    try:
        answer = foreign_json(path.read_bytes())
        error = bounded(answer["error"]) if "error" in answer else None
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as fault:
        raise senseless(type(fault).__name__) from fault
    if error is not None:
        raise error
    if not isinstance(answer, dict):
        raise senseless("not an object")
    return answer


def bounded(data: Mapping[str, Any]) -> StageError:
    """An error that a stage wrote down, its texts cut: the record of the job keeps it, and everyone who lists jobs gets it.

    Raises:
        ValueError, LookupError, TypeError: it is none.
    """
    found = StageError.from_dict({**data, "code": ErrorCode(data["code"])})
    names = (own.name for own in fields(found) if own.name != "code")
    return StageError(found.code, **{name: visible(getattr(found, name), _MOST_TEXT_BYTES) for name in names})


def read_compiled(directory: Path, most: int) -> CompiledArtifact:
    """The artifact that a stage left; its weights stay in their file, and of the rest ``most`` bytes are read at most.

    Raises:
        IngotError: COMPILER_FAULT where there is none that makes sense; what the parts of an artifact are refused with.
    """
    try:
        return read_artifact(directory, most)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError) as fault:
        raise senseless(f"no artifact ({type(fault).__name__})") from fault


def refuse_odd_files(work: Path) -> None:
    """Raises IngotError COMPILER_FAULT where ``work`` holds anything but files and folders.

    Whoever reads the folder next may read more than the process that wrote it: a link would lead him to a key, a fifo
    would keep him waiting.
    """
    for count, (path, mode) in enumerate(_entries(work)):
        if count > _MOST_FILES or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise senseless(f"{path.relative_to(work)} is no file and no folder, or there are very many")


def killed_for_memory() -> int | None:
    """How many processes the kernel has ended for want of memory, of the machine or of a cgroup; None where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def how_it_died(
    status: int, seconds: float, file_size: int, killed: int | None = None, *, refused: bool = True
) -> IngotError:
    """The error of a process that ended with ``status`` (negative: by a signal) under these limits.

    Args:
        killed: :func:`killed_for_memory` from before it began.
        refused: it was not started, as a part of the boundary is missing that must be there: its launcher said so where the process
            itself cannot. Else the status for that is one of its own.
    """
    if status == -signal.SIGXCPU:
        return exceeded("time", f"{seconds:g} seconds")
    if status == -signal.SIGKILL:
        return _was_killed(killed, killed_for_memory())
    if status == NO_SPACE:
        return UnseenError(ErrorCode.DISK_FULL, "there was no space for what the stage wrote")
    if status == -signal.SIGXFSZ:
        return exceeded("disk", f"files of {file_size} bytes")
    if status == REFUSED and refused:
        return IngotError(
            ErrorCode.UNAVAILABLE,
            "a part of the boundary around compilations is missing, and INGOT_SANDBOX requires it",
            field="INGOT_SANDBOX",
            remedy="Tell the operator of the service: the worker's log says which part, docs/design/boundary.md what it needs.",
        )
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return IngotError(
        ErrorCode.COMPILER_FAULT,
        f"the compiler died with {how}",
        remedy="Please report this with the job's log; compiling at a lower opt_level may avoid it.",
    )


def _was_killed(before: int | None, now: int | None) -> IngotError:
    """NOTE: who sent a signal is not said. That a program ended itself so cannot be told from that somebody else did."""
    if before is None or now is None:
        remedy = f"Perhaps the kernel did so, for want of memory, or somebody else, or it did so itself. {_SMALLER}"
    elif now > before:
        remedy = f"The kernel ended processes for want of memory meanwhile. {_SMALLER}"
    else:
        remedy = (
            "The kernel ended nobody for want of memory meanwhile: it did so itself, or somebody on the machine did."
        )
    return IngotError(
        ErrorCode.STAGE_KILLED,
        "the process of the stage was killed",
        received="SIGKILL, which the service did not send",
        remedy=remedy,
    )


def exceeded(what: str, allowed: str) -> IngotError:
    return IngotError(
        ErrorCode.RESOURCE_LIMIT,
        f"the compilation used more {what} than a job may",
        expected=f"at most {allowed}",
        remedy="Compile a smaller model, tune less, or ask the operator of the service for a higher limit.",
    )


def _entries(folder: Path) -> Iterator[tuple[Path, int]]:
    try:
        for parent, folders, files in os.walk(folder, onerror=_raise):
            for name in (*folders, *files):
                path = Path(parent, name)
                yield path, path.lstat().st_mode
    except OSError as error:
        raise senseless(f"{type(error).__name__} when it was read") from error


def _raise(error: OSError) -> None:
    raise error


def senseless(reason: str) -> IngotError:
    """The error of a stage whose answer is none."""
    return IngotError(
        ErrorCode.COMPILER_FAULT,
        f"what the compiler left behind makes no sense: {reason}",
        remedy="Please report this with the job's log.",
    )
