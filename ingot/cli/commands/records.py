"""``ingot records``: what was measured when models were tuned, and which schedules are the fastest."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.cli.arguments import add_common
from ingot.cli.output import SUCCESS, Output
from ingot.cli.values import whole
from ingot.home import RECORDS_FILE, home_directory
from ingot.record_files import given_records, read_records, records_file, require_records
from ingot.sources import compiler
from ingot.target import chosen_target
from shared_ir.storage.faults import told
from shared_ir.storage.files import write_atomically

if TYPE_CHECKING:
    from compiler_service.compiler.tune.records.lines import Unreadable
    from compiler_service.compiler.tune.records.record import TrialRecord

KEPT = 100
"""Records of each kernel that `prune` leaves."""
_KNOWS_NONE = "No records: `ingot tune MODEL` measures some."
_MATCHES_NOT = "No record matches: without --label and --target there are some."
_GAINS_NOT = "No schedule is faster than the default one: `ingot records list` shows what was tried."


def add_parser(commands: Any) -> None:
    records = commands.add_parser("records", help="what was measured when models were tuned")
    actions = records.add_subparsers(metavar="ACTION", required=True)
    every = actions.add_parser("list", help="every trial, the newest first")
    best = actions.add_parser(
        "best", help="the fastest schedule of each kernel, and how much faster it is than the default"
    )
    for parser in (every, best):
        parser.add_argument(
            "--label", default="", help="only kernels whose label has this in it: Conv, MatMul+Relu, ..."
        )
    prune = actions.add_parser("prune", help="drop what is worth least, and what is no record")
    prune.add_argument(
        "--keep", type=whole(1), default=KEPT, metavar="N", help=f"records of each kernel that stay (default: {KEPT})"
    )
    prune.add_argument("--this-compiler", action="store_true", help="drop what other versions of the compiler made")
    bring = actions.add_parser("import", help="add the records of another file")
    bring.add_argument("source", type=Path, metavar="FILE", help="records of another machine, or of a service")
    export = actions.add_parser("export", help="write records to a file of their own")
    export.add_argument("destination", type=Path, metavar="FILE", help="is replaced")
    for parser in (every, best, export):
        parser.add_argument("--target", help="only records for this target: host, aws/graviton3, llvm -mcpu=...")
    for parser, run in ((every, _list), (best, _best), (prune, _prune), (bring, _import), (export, _export)):
        parser.set_defaults(run=run)
        parser.add_argument("--file", type=Path, help=f"the records (default: {RECORDS_FILE} in the home)")
        add_common(parser)


# ---- commands


def _list(arguments: argparse.Namespace, output: Output) -> int:
    found, known = _chosen(arguments, output)
    found = sorted(found, key=lambda r: -r.time)
    output.document({"records": [_document(record) for record in found]})
    rows = [
        (
            record.label,
            _cpu(record),
            record.rule,
            "confirmed" if record.confirmed else record.outcome.value,
            _micro(record.seconds),
            _micro(record.spread),
            _gain(record),
            _when(record.time),
        )
        for record in found
    ]
    columns = ("kernel", "cpu", "rule", "outcome", ">us", ">spread", ">gain", "when")
    _some(output, columns, rows, _MATCHES_NOT if known else _KNOWS_NONE)
    return SUCCESS


def _best(arguments: argparse.Namespace, output: Output) -> int:
    with compiler():
        from compiler_service.compiler.tune.records.book import best_of
        from compiler_service.compiler.version import compiler_version

    chosen, known = _chosen(arguments, output)
    found = sorted(best_of(chosen), key=lambda r: (r.compiler != compiler_version(), r.share))
    is_used = [record.compiler == compiler_version() for record in found]
    documents = [{**_document(r), "used": used} for r, used in zip(found, is_used, strict=True)]
    output.document({"records": documents})
    rows = [
        (
            record.label,
            _cpu(record),
            record.rule,
            _micro(record.default_seconds),
            _micro(record.seconds),
            _gain(record),
            "yes" if used else "by another compiler",
        )
        for record, used in zip(found, is_used, strict=True)
    ]
    columns = ("kernel", "cpu", "rule", ">default us", ">us", ">gain", "used")
    _some(output, columns, rows, _GAINS_NOT if chosen else _MATCHES_NOT if known else _KNOWS_NONE)
    return SUCCESS


def _prune(arguments: argparse.Namespace, output: Output) -> int:
    with compiler():
        from compiler_service.compiler.tune.records.book import prune
        from compiler_service.compiler.tune.records.journal import Journal
        from compiler_service.compiler.version import compiler_version

    path, counts = _path(arguments), dict[str, int]()
    require_records(path)

    def chosen(records: Sequence[TrialRecord]) -> Sequence[TrialRecord]:
        kept = prune(records, arguments.keep, compiler_version() if arguments.this_compiler else None)
        counts.update(kept=len(kept), dropped=len(records) - len(kept))
        return kept

    unreadable = Journal(path).rewrite(chosen) if path.exists() else None
    counts = {"kept": 0, "dropped": 0, "unreadable": unreadable.count if unreadable else 0} | counts
    output.document(counts)
    output.say(f"{counts['kept']} records are kept, {counts['dropped']} dropped")
    if unreadable is not None:
        _tell(unreadable, path, output)
    return SUCCESS


def _import(arguments: argparse.Namespace, output: Output) -> int:
    with compiler():
        from compiler_service.compiler.tune.records.book import merge
        from compiler_service.compiler.tune.records.journal import Journal
        from compiler_service.compiler.tune.records.lines import write_line

    path = _path(arguments)
    require_records(path)
    given, unreadable = given_records(arguments.source)
    journal = Journal(path)
    known = frozenset(map(write_line, journal.read_new()))
    new = [record for record in merge(given) if write_line(record) not in known]
    journal.append(new)
    output.document({"read": len(given), "new": len(new), "unreadable": unreadable.count})
    output.say(f"{len(given)} records were read, {len(new)} of them new")
    _tell(unreadable, arguments.source, output)
    return SUCCESS


def _export(arguments: argparse.Namespace, output: Output) -> int:
    with compiler():
        from compiler_service.compiler.tune.records.lines import write_lines

    data = write_lines(_chosen(arguments, output)[0])
    with told("the records cannot be written", arguments.destination):
        write_atomically(arguments.destination, data)
    count = data.count(b"\n")
    output.document({"file": str(arguments.destination), "records": count})
    output.say(f"{count} records are written to {arguments.destination}")
    return SUCCESS


# ---- records


def _path(arguments: argparse.Namespace) -> Path:
    return records_file(arguments.file or home_directory(arguments.home) / RECORDS_FILE)


def _chosen(arguments: argparse.Namespace, output: Output) -> tuple[Sequence[TrialRecord], int]:
    """The records that the options leave, and of how many; none where an installation has tuned nothing yet."""
    path = _path(arguments)
    if arguments.file is None and not path.exists():
        return (), 0
    found, unreadable = read_records(path)
    _tell(unreadable, path, output)
    target = str(chosen_target(arguments.target)) if arguments.target else ""
    label = getattr(arguments, "label", "")
    return [r for r in found if (not target or r.target == target) and label in r.label], len(found)


def _tell(unreadable: Unreadable, path: Path, output: Output) -> None:
    if unreadable.count:
        output.note(f"{unreadable.count} lines of {path} are no records that this version reads; {unreadable.reason}")


# ---- what is shown


def _document(record: TrialRecord) -> Mapping[str, Any]:
    with compiler():
        from compiler_service.compiler.tune.records.lines import document_of

    return document_of(record)


def _some(output: Output, columns: Sequence[str], rows: Sequence[Sequence[Any]], none: str) -> None:
    """A table; the sentence ``none`` in place of an empty one."""
    if rows:
        output.some(columns, rows)
    else:
        output.say(none)


def _cpu(record: TrialRecord) -> str:
    named = (word.removeprefix("-mcpu=") for word in record.target.split() if word.startswith("-mcpu="))
    return next(named, "")


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds else ""


def _gain(record: TrialRecord) -> str:
    """How many times as fast as the default schedule."""
    return f"{1 / record.share:.2f}x" if 0 < record.share < math.inf else ""


def _when(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(sep=" ", timespec="minutes")[:16]
    except (ValueError, OverflowError, OSError):
        return ""
