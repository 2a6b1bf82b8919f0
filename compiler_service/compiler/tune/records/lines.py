"""Records as lines of JSON, version 2: canonical JSON (keys sorted, no spaces), one record a line, each with a checksum of its own.

What a line holds is in docs/tuning.md. A line that is torn, edited, foreign, too long or of another version harms itself alone: it is
passed over and counted, so that no file of records can break a compilation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from compiler_service.compiler.schedule.language.knobs import Value, Values
from compiler_service.compiler.schedule.records import from_json, to_json
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.claims import Claimant, TrialClaim
from compiler_service.compiler.tune.records.record import MOST_TIME, TrialRecord
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import IngotError
from shared_ir.foreign_json import foreign_json

RECORD_VERSION = 2
MOST_LINE_BYTES = 1 << 20
"""Of one record: a program of hundreds of nests has some 100 KiB."""
_MOST_CHARACTERS = 10_000
_MOST_SIZES = 10_000
_TRIAL, _CLAIM, _GIVEN_BACK = "trial", "claim", "given back"
_OWN = frozenset(f.name for f in fields(TrialRecord)) - {"others"}
_FRAME = frozenset({"version", "kind", "checksum"})
_TEXTS = ("workload", "family", "label", "target", "machine", "compiler", "rule", "output")
_TIMES = ("seconds", "spread", "default_seconds", "default_spread", "time")
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, IngotError)


@dataclass(frozen=True)
class Unreadable:
    """Lines that were passed over: how many, and what was wrong with the first."""

    count: int = 0
    reason: str = ""

    def and_one(self, reason: str) -> Unreadable:
        return Unreadable(self.count + 1, self.reason or reason)


def document_of(record: TrialRecord) -> dict[str, Any]:
    """A record as a JSON object, without what makes a line of it."""
    entry: dict[str, Any] = {name: getattr(record, name) for name in _OWN}
    entry |= {"schedules": [to_json(s) for s in record.schedules], "values": dict(record.values)}
    return dict(record.others) | entry


def write_line(record: TrialRecord) -> bytes:
    """A record as its line, the end of the line included."""
    return _line(_TRIAL, document_of(record))


def write_lines(records: Iterable[TrialRecord]) -> bytes:
    """Sorted, each once: equal sets give equal bytes."""
    return b"".join(sorted({write_line(record) for record in records}))


def write_claim(claim: TrialClaim) -> bytes:
    """A claim as its line."""
    workload, target, compiler, methods = claim.task
    entry = {"workload": workload, "target": target, "compiler": compiler, "candidates": list(claim.candidates)}
    entry |= {"methods": list(methods)} if methods else {}
    return _line(_GIVEN_BACK if claim.gives_back else _CLAIM, entry | {"by": asdict(claim.by), "time": claim.time})


def _line(kind: str, entry: Mapping[str, Any]) -> bytes:
    whole = {"version": RECORD_VERSION, "kind": kind, **entry}
    return canonical_json({**whole, "checksum": sha256_hex(canonical_json(whole))}) + b"\n"


def read_lines(data: bytes) -> tuple[tuple[TrialRecord, ...], Unreadable]:
    """The records of ``data``, in order, and what of it is none. Claims are neither."""
    records: list[TrialRecord] = []
    unreadable = Unreadable()
    for entry in read_entries(data):
        if isinstance(entry, TrialRecord):
            records.append(entry)
        elif isinstance(entry, str):
            unreadable = unreadable.and_one(entry)
    return tuple(records), unreadable


def read_entries(data: bytes) -> Iterable[TrialRecord | TrialClaim | str]:
    """Records and claims; in place of what is neither a sentence that says why."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _entry(line.removesuffix(b"\r"))  # of a file that went through a system with other ends of lines
        except _UNREADABLE as error:
            yield f"line {number}: {str(error)[:200] or type(error).__name__}"


def _entry(line: bytes) -> TrialRecord | TrialClaim:
    if len(line) > MOST_LINE_BYTES:
        raise ValueError(f"it has {len(line)} bytes, and a record at most {MOST_LINE_BYTES}")
    entry = foreign_json(line)
    if not isinstance(entry, dict):
        raise ValueError("it is no record")
    if entry.get("version") != RECORD_VERSION:
        raise ValueError(f"it is of version {str(entry.get('version'))[:20]}, and not {RECORD_VERSION}")
    checksum = entry.pop("checksum", None)
    if checksum != sha256_hex(canonical_json(entry)) or canonical_json({**entry, "checksum": checksum}) != line:
        raise ValueError("its checksum is not that of what it says")
    if entry["kind"] == _TRIAL:
        return _record(entry)
    if entry["kind"] in (_CLAIM, _GIVEN_BACK):
        return _claim(entry)
    raise ValueError(f"it is of the unknown kind {str(entry['kind'])[:40]!r}")


def _record(entry: Mapping[str, Any]) -> TrialRecord:
    plain: dict[str, Any] = {name: _text(name, entry[name]) for name in _TEXTS}
    plain |= {name: _seconds(name, entry[name]) for name in _TIMES}
    if plain["time"] > MOST_TIME:
        raise ValueError("time is beyond the year 9999")
    if not all(type(entry[name]) is bool for name in ("confirmed", "settled")):
        raise ValueError("confirmed and settled are true or false")
    record = TrialRecord(
        **plain,
        sizes=_sizes(entry["sizes"]),
        methods=tuple(_text("methods", name) for name in _list("methods", entry["methods"])),
        values=_values(entry["values"]),
        schedules=tuple(from_json(schedule) for schedule in _list("schedules", entry["schedules"])),
        outcome=OutcomeKind(entry["outcome"]),
        confirmed=entry["confirmed"],
        settled=entry["settled"],
        others={name: value for name, value in entry.items() if name not in _OWN | _FRAME},
    )
    if record.outcome is OutcomeKind.MEASURED and not record.seconds:
        raise ValueError("a measured candidate takes some time")
    if record.settled and record.outcome is not OutcomeKind.MEASURED:
        raise ValueError("a task is left with a schedule that was measured")
    if record.confirmed and not 0 < record.share < 1:
        raise ValueError("a candidate that is confirmed is faster than the default schedule")
    return record


def _claim(entry: Mapping[str, Any]) -> TrialClaim:
    workload, target, compiler = (_text(name, entry[name]) for name in ("workload", "target", "compiler"))
    by = Claimant(_whole(entry["by"]["pid"]), _whole(entry["by"]["began"]), _text("place", entry["by"]["place"]))
    candidates = tuple(_text("candidates", c) for c in _list("candidates", entry["candidates"]))
    gives_back = entry["kind"] == _GIVEN_BACK
    methods = tuple(sorted(_text("methods", name) for name in _list("methods", entry.get("methods", []))))
    return TrialClaim(
        (workload, target, compiler, methods), candidates, by, _seconds("time", entry["time"]), gives_back
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
        raise ValueError(f"{name} is no text, or a very long one")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not abs(value) < 2**63:
        raise ValueError("a size or the number of a process is a whole number of 64 bits")
    return value


def _sizes(value: Any) -> tuple[int, ...]:
    if len(_list("sizes", value)) > _MOST_SIZES:
        raise ValueError("there are very many sizes")
    return tuple(map(_whole, value))


def _seconds(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is no time")
    return float(value)


def _values(entry: Any) -> Values:
    if not isinstance(entry, dict):
        raise ValueError("values of knobs have names")
    return {_text("values", name): _value(value) for name, value in entry.items()}


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(map(_value, value))
    if not isinstance(value, bool | int | str):
        raise ValueError("what a knob answers is a number, a text or a list of such")
    return value
