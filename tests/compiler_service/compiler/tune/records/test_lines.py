"""Lines of records: what was written is read, and what is broken harms itself alone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.tune.records.lines import (
    MOST_LINE_BYTES,
    Unreadable,
    read_entries,
    read_lines,
    write_line,
    write_lines,
)
from compiler_service.compiler.tune.records.record import TrialRecord
from shared_ir.digest import canonical_json, sha256_hex
from tests.compiler_service.compiler.tune.records.trials import trial, trials


def signed(entry: dict[str, Any]) -> bytes:
    """A line of somebody who knows how checksums are made."""
    entry = {name: value for name, value in entry.items() if name != "checksum"}
    return canonical_json({**entry, "checksum": sha256_hex(canonical_json(entry))})


def edited(**changes: Any) -> bytes:
    return signed({**json.loads(write_line(trial())), **changes})


@given(st.lists(trials, max_size=5))
def test_what_was_written_is_read(records: list[TrialRecord]) -> None:
    data = b"".join(map(write_line, records))
    assert read_lines(data) == (tuple(records), Unreadable())
    assert write_lines(records) == write_lines(read_lines(data)[0]) == write_lines([*records, *reversed(records)])


@given(st.lists(st.one_of(trials, st.binary(max_size=40)), max_size=6))
def test_intact_lines_are_read_among_others(given: list[TrialRecord | bytes]) -> None:
    lines = [one + b"\n" if isinstance(one, bytes) else write_line(one) for one in given]
    found, _ = read_lines(b"".join(lines))
    assert list(found) == [one for one in given if isinstance(one, TrialRecord)]


@given(st.lists(trials, min_size=1, max_size=3), st.data())
def test_cut_spliced_and_doubled_bytes_harm_their_own_lines(records: list[TrialRecord], data: st.DataObject) -> None:
    lines = [write_line(r) for r in records]
    whole = b"".join(lines)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    inserted = data.draw(st.sampled_from([b"", whole[start:end] * 2, b"\n", b"\xff\n", b"\x00" * 9]))
    broken = whole[:start] + inserted + whole[end:]
    found, _ = read_lines(broken)
    before, after = whole[:start].count(b"\n"), whole[end:].count(b"\n")
    assert [write_line(r) for r in found[:before]] == lines[:before]
    untouched = max(0, after - 1) if end and whole[end - 1 : end] != b"\n" else after
    if untouched and broken.endswith(b"".join(lines[len(lines) - untouched :])):
        assert [write_line(r) for r in found[len(found) - untouched + 1 :]] == lines[len(lines) - untouched + 1 :]
    assert all(write_line(r) in lines for r in found)


@given(trials, st.data())
def test_a_byte_that_differs_is_seen(record: TrialRecord, data: st.DataObject) -> None:
    line = bytearray(write_line(record))
    place = data.draw(st.integers(0, len(line) - 2))
    line[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    found, unreadable = read_lines(bytes(line))
    assert found == ()
    assert unreadable.count >= 1 or not bytes(line).strip()


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    found, unreadable = read_lines(data)
    assert found == ()
    assert unreadable.count <= data.count(b"\n") + 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (write_line(trial())[:-9], "JSON|delimiter|Expecting|Unterminated"),
        (write_line(trial()).replace(b'"rows":8', b'"rows":9'), "checksum"),
        (write_line(trial()).replace(b",", b", "), "checksum"),
        (edited(version=1), "version 1"),
        (edited(version=3), "version 3"),
        (edited(kind="rumour"), "unknown kind"),
        (edited(seconds=-1.0), "seconds is no time"),
        (edited(seconds="1"), "seconds is no time"),
        (edited(seconds=True), "seconds is no time"),
        (edited(seconds=0.0), "takes some time"),
        (edited(time=1e300), "beyond the year 9999"),
        (edited(confirmed=True, default_seconds=1e-4), "faster than the default"),
        (edited(confirmed=True, seconds=1e-300, default_seconds=1e300), "faster than the default"),
        (edited(settled=True, outcome="crashed"), "left with a schedule that was measured"),
        (edited(confirmed=1), "true or false"),
        (edited(settled=None), "true or false"),
        (edited(label=3), "label is no text"),
        (edited(sizes=["many"]), "whole number"),
        (edited(sizes=[2**70]), "whole number"),
        (edited(sizes=[1] * 10_001), "very many"),
        (edited(values=[1]), "have names"),
        (edited(values={"a": 0.5}), "what a knob answers"),
        (edited(values={"a": None}), "what a knob answers"),
        (edited(schedules=[[{"step": "explode"}]]), "not a schedule step"),
        (edited(schedules=[["split"]]), "."),
        (edited(schedules=[[{"step": "split", "stage": "y"}]]), "."),
        (edited(outcome="splendid"), "splendid"),
        (edited(target="x" * 10_001), "target is no text"),
        (edited(others="x" * MOST_LINE_BYTES), "bytes"),
        (b'{"version":2,"seconds":1e999}', "too large"),
        (b'{"version":2,"seconds":NaN}', "NaN"),
        (b"[" * 100_000, "nested too deep|JSON"),
        (b"[1, 2]", "no record"),
        (b"\xff\xfe", "."),
        (b'{"version": 2}', "checksum"),
    ],
    ids=lambda given: "" if isinstance(given, bytes) else given,
)
def test_what_is_no_record_is_passed_over_and_said(line: bytes, reason: str) -> None:
    good = trial(label="good")
    found, unreadable = read_lines(write_line(good) + line + b"\n" + write_line(good))
    assert found == (good, good)
    assert unreadable.count == 1
    assert unreadable.reason.startswith("line 2: ")
    (said,) = [entry for entry in read_entries(line) if isinstance(entry, str)]
    assert said
    assert re.search(reason, unreadable.reason), unreadable.reason


def test_a_missing_field_is_said() -> None:
    entry = json.loads(write_line(trial()))
    for name in set(entry) - {"checksum", "version", "kind"}:
        _, unreadable = read_lines(signed({n: v for n, v in entry.items() if n != name}))
        assert unreadable.count == 1, name


def test_fields_of_later_versions_are_kept() -> None:
    line = edited(cold_seconds=3.5)
    (record,), _ = read_lines(line)
    assert record.others == {"cold_seconds": 3.5}
    assert write_line(record).strip() == line


@given(st.lists(trials, max_size=3))
def test_other_ends_of_lines_change_nothing(made: list[TrialRecord]) -> None:
    """A file that went through a system or a tool that writes them."""
    data = write_lines(made)
    assert read_lines(data.replace(b"\n", b"\r\n")) == read_lines(data)
