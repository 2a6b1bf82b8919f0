"""Tuning records that many workers add to at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler_service.catalogue import PipelineCompiler
from compiler_service.compiler.tune.records.lines import read_lines, write_lines
from compiler_service.jobs.records import UploadedModel
from compiler_service.store import tuning_store
from compiler_service.store.tuning_store import TuningStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.local import FileStore
from tests.compiler_service.compiler.tune.records.trials import OTHER, TARGET, trial

MODEL = UploadedModel("ab" * 32)


@pytest.fixture(name="store")
def fixture_store(tmp_path: Path) -> TuningStore:
    return TuningStore(FileStore(tmp_path / "store"), PipelineCompiler().merge_records)


def test_records_are_kept_by_model_and_target(store: TuningStore) -> None:
    assert store.load(MODEL, TARGET) == b""
    store.add(MODEL, TARGET, write_lines([trial()]))
    assert read_lines(store.load(MODEL, TARGET))[0] == (trial(),)
    assert store.load(MODEL, OTHER) == b""
    assert store.load(UploadedModel("cd" * 32), TARGET) == b""


def test_workers_at_once_lose_nothing_of_each_other(store: TuningStore) -> None:
    records = [trial(machine=f"worker {n}") for n in range(24)]
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda record: store.add(MODEL, TARGET, write_lines([record])), records))
    assert store.load(MODEL, TARGET) == write_lines(records)


def test_what_is_no_record_is_not_kept(store: TuningStore) -> None:
    store.add(MODEL, TARGET, b"rubbish\n" + write_lines([trial()]) + write_lines([trial()])[:50] + b"\n")
    assert store.load(MODEL, TARGET) == write_lines([trial()])


def test_a_store_that_others_write_to_without_end_is_unavailable(
    store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileStore, "put_if_absent", lambda *_: False)
    monkeypatch.setattr(tuning_store, "_PAUSE_SECONDS", 0.0)
    with pytest.raises(IngotError) as caught:
        store.add(MODEL, TARGET, write_lines([trial()]))
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_records_that_no_compilation_uses_are_no_part_of_the_key() -> None:
    compiler = PipelineCompiler()
    options = compiler.normalise_options({})

    def key(*records: object) -> str:
        return compiler.artifact_key(MODEL, TARGET, options, write_lines(records))  # type: ignore[arg-type]

    assert key() == key(trial()) == key(trial(confirmed=True, compiler="old"))
    assert key() != key(trial(confirmed=True)) == key(trial(confirmed=True), trial(rule="another"))
