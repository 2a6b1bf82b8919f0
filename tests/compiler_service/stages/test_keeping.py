"""What a stage has measured is kept, however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler_service.stages import keeping as module
from compiler_service.stages.keeping import keeping
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.appended import add_lines
from tests.services.toy_stages import toy_record


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, RuntimeError, SystemExit])
def test_all_is_kept_in_the_end(tmp_path: Path, end: type[BaseException] | None) -> None:
    kept: list[bytes] = []
    journal = tmp_path / "trials"

    def work() -> None:
        with keeping(journal, kept.append, 3600.0) as trials:
            add_lines(journal, toy_record(1))
            trials.when_due()
            assert kept == [], "it is not time"
            add_lines(journal, b'{"kind":"claim"}\n' + toy_record(2))
            if end is not None:
                raise end

    if end is None:
        work()
    else:
        with pytest.raises(end):
            work()
    assert kept == [toy_record(1) + toy_record(2)], "claims are of a process that has ended"


def test_it_is_kept_meanwhile(tmp_path: Path) -> None:
    kept: list[bytes] = []
    with keeping(tmp_path / "trials", kept.append, 0.0) as trials:
        trials.when_due()
        add_lines(tmp_path / "trials", toy_record(1))
        trials.when_due()
        assert kept == [toy_record(1)]
        trials.when_due()
    assert kept == [toy_record(1)]


def test_what_cannot_be_kept_yet_is_kept_later(tmp_path: Path) -> None:
    kept: list[bytes] = []
    away = [True]

    def keep(lines: bytes) -> None:
        if away[0]:
            raise IngotError(ErrorCode.UNAVAILABLE, "the store is away")
        kept.append(lines)

    with keeping(tmp_path / "trials", keep, 0.0) as trials:
        add_lines(tmp_path / "trials", toy_record(1))
        trials.when_due()
        add_lines(tmp_path / "trials", toy_record(2))
        away[0] = False
    assert kept == [toy_record(1) + toy_record(2)]


def test_how_a_stage_ended_is_told_though_nothing_can_be_kept(tmp_path: Path) -> None:
    def keep(lines: bytes) -> None:
        raise IngotError(ErrorCode.UNAVAILABLE, "the store is away")

    def work(end: type[BaseException] | None) -> None:
        with keeping(tmp_path / "trials", keep, 0.0):
            add_lines(tmp_path / "trials", toy_record(1))
            if end is not None:
                raise end

    with pytest.raises(KeyboardInterrupt):
        work(KeyboardInterrupt)
    with pytest.raises(IngotError, match="the store is away"):
        work(None)


def test_a_stage_that_writes_without_end_fills_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    monkeypatch.setattr(module, "_MOST_BYTES", 3 * len(toy_record(1)))
    with keeping(tmp_path / "trials", kept.append, 0.0):
        add_lines(tmp_path / "trials", toy_record(1) * 100)
    assert kept == [toy_record(1) * 3]
