"""Files of tuning records, as commands and :func:`ingot.tune` are given them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.sources import compiler
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import told

if TYPE_CHECKING:
    from compiler_service.compiler.tune.records.lines import Unreadable
    from compiler_service.compiler.tune.records.record import TrialRecord


def records_file(path: Path) -> Path:
    """The file at ``path``, or the one that a link there points to; there need be none yet.

    Raises:
        IngotError: INVALID_ARGUMENT, something else lies there: a folder, a pipe, a device, links that lead nowhere.
    """
    with told("the records cannot be read", path):
        found = Path(os.path.realpath(path))
        if not found.is_symlink() and (found.is_file() or not found.exists()):
            return found
        received = "a folder" if found.is_dir() else "links in a circle" if found.is_symlink() else "a pipe or a device"
    raise IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "the records are no file",
        field=str(path),
        expected="a file of lines of JSON, or the name of one to be made",
        received=received,
    )


def read_records(path: Path) -> tuple[tuple[TrialRecord, ...], Unreadable]:
    """The records of a file, and what of it is none. Raises IngotError: it cannot be read."""
    with compiler():
        from compiler_service.compiler.tune.records.lines import read_lines

    with told("the records cannot be read", path):
        return read_lines(records_file(path).read_bytes())


def require_records(path: Path) -> None:
    """Raises IngotError INVALID_ARGUMENT: the file that is to be written is one of something else."""
    if path.exists():
        given_records(path)


def given_records(path: Path) -> tuple[tuple[TrialRecord, ...], Unreadable]:
    """As :func:`read_records`, of a file that is said to hold some.

    Raises:
        IngotError: it cannot be read; INVALID_ARGUMENT, it has something in it, and nothing of that is a record.
    """
    found, unreadable = read_records(path)
    if unreadable.count and not found:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the file holds no records, and is left as it is",
            field=str(path),
            expected="lines of JSON, as `ingot records export` writes them",
            received=unreadable.reason,
        )
    return found, unreadable
