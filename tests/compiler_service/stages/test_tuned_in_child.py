"""Tuning in a child, which may write one file beside its own: another file is put in its place meanwhile."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import ingot
from compiler_service.boundary.parts import BoundaryPart
from compiler_service.boundary.state import standing
from compiler_service.compiler.tune.records.journal import Journal
from compiler_service.compiler.tune.records.lines import read_lines
from compiler_service.compiler.tune.records.record import TrialRecord
from ingot.tuning import TuningResult
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.tune.test_tuned_models import small_model
from tests.services.small_disk import small_disk


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


def on_record(path: Path) -> tuple[TrialRecord, ...]:
    return read_lines(path.read_bytes())[0]


def keep_all(path: Path) -> None:
    Journal(path).rewrite(lambda records: records)


def keep_none(path: Path) -> None:
    Journal(path).rewrite(lambda records: ())


def tune_during(model: Path, records: Path, disturb: Callable[[int], None], seconds: float) -> TuningResult:
    """``disturb`` is called with the number of each report that there have been trials, from 0."""
    count = 0

    def progress(stage: str, done: int, total: int, message: str) -> None:
        nonlocal count
        if "trials" in message:
            count += 1
            disturb(count - 1)

    return ingot.tune(model, seconds=seconds, records=records, progress=progress)


@pytest.mark.parametrize("replace", [keep_all, keep_none, Path.unlink])
def test_a_tuner_goes_on_when_its_records_are_replaced(
    model: Path, tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    records, left = tmp_path / "records.jsonl", list[Sequence[TrialRecord]]()

    def disturb(number: int) -> None:
        if number == 0:
            replace(records)
            left.append(on_record(records) if records.exists() else ())

    result = tune_during(model, records, disturb, 20)
    (kept,) = left
    found = on_record(records)
    assert bool(kept) == (replace is keep_all)
    assert found[: len(kept)] == kept
    assert [r for r in found[len(kept) :] if not r.settled], "trials were gone on with"
    assert [r for r in found if r.settled], "and came to an end"
    assert result.trials == sum(not r.confirmed and not r.settled for r in found)


@pytest.mark.skipif(BoundaryPart.FILES in standing().missing, reason="this kernel has no Landlock")
def test_a_tuner_whose_records_are_replaced_without_end_gives_up(model: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"

    def progress(stage: str, done: int, total: int, message: str) -> None:
        if records.exists():
            keep_all(records)

    with pytest.raises(IngotError) as caught:
        ingot.tune(model, seconds=2, records=records, progress=progress)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == str(records)


@pytest.mark.parametrize("full", ["records", "temporary files"])
def test_a_disk_that_is_full_is_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        if disk is None:
            pytest.skip("no file system may be mounted here")
        records = (disk if full == "records" else tmp_path) / "records.jsonl"
        if full == "temporary files":
            monkeypatch.setattr(tempfile, "tempdir", str(disk))

        def fill(stage: str, done: int, total: int, message: str) -> None:
            with contextlib.suppress(OSError), (disk / "all").open("ab", 0) as file:
                while file.write(bytes(4096)):
                    pass

        with pytest.raises(IngotError) as caught:
            ingot.tune(model, seconds=4, records=records, progress=fill)
        assert caught.value.code is ErrorCode.DISK_FULL
        assert caught.value.field.startswith(str(records if full == "records" else disk))
        assert ", " not in caught.value.field
