"""Tuning records: which schedule was measured to be the fastest for a kernel on a target. One JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from compiler_service.compiler.schedule.default import methods_of
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.records import from_json, to_json
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import foreign_json

RECORD_VERSION = 1


@dataclass(frozen=True)
class Record:
    """The result of tuning one kernel.

    Attributes:
        kernel: :func:`kernel_digest` of what it computes.
        target: canonical text of the target, caches and features included.
        schedule: the fastest schedule.
        seconds: median time of one run with it; ``default_seconds`` with the default schedule.
        spread: largest minus smallest time of the rounds, in seconds.
        candidates: how many schedules were measured.
        compiler_version: what generated the code.
    """

    kernel: str
    target: str
    schedule: Schedule
    seconds: float
    default_seconds: float
    spread: float
    candidates: int
    compiler_version: str


def kernel_digest(text: str) -> str:
    """Digest of a kernel's tensor expressions: equal for kernels that differ only in names."""
    return sha256_hex(text.encode())


def write_records(records: Iterable[Record]) -> bytes:
    """JSON lines, sorted, so that equal sets give equal bytes."""
    lines = sorted(
        json.dumps({"version": RECORD_VERSION, **asdict(r), "schedule": to_json(r.schedule)}, sort_keys=True)
        for r in records
    )
    return "".join(f"{line}\n" for line in lines).encode()


def read_records(data: bytes) -> tuple[Record, ...]:
    """The inverse of :func:`write_records`; records of another version are passed over.

    Raises:
        IngotError: INVALID_ARGUMENT naming the malformed line.
    """
    records: list[Record] = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            entry: Mapping[str, Any] = foreign_json(line)
            if entry["version"] == RECORD_VERSION:
                fields = {k: v for k, v in entry.items() if k != "version"}
                records.append(Record(**{**fields, "schedule": from_json(fields["schedule"])}))
        except (ValueError, KeyError, TypeError, IngotError) as error:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                f"line {number} of the tuning records cannot be read: {error}",
                field="records",
                expected="one JSON record a line",
                received=line[:80].decode(errors="replace"),
            ) from error
    return tuple(records)


def merge(old: Iterable[Record], new: Iterable[Record]) -> tuple[Record, ...]:
    """One record per kernel, target and methods that round more than plain sums: the newest."""
    return tuple({(r.kernel, r.target, methods_of(r.schedule)): r for r in (*old, *new)}.values())
