"""Objects that are written piece by piece, in a folder and in a bucket: resumed by others, whole or not there, swept when abandoned."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.drafts import abandoned, draft_of
from shared_ir.storage.growing import WINDOW_BYTES
from shared_ir.storage.local import FileStore
from shared_ir.storage.parts import PART_BYTES, DraftPart, PartsDraft, chain
from shared_ir.storage.protocol import DraftWriter, ObjectInfo, ObjectStore
from shared_ir.storage.store import open_store
from tests.services.s3_server import s3_server

KEY = f"uploads/{'ab' * 32}.1000"
DATA = random.Random(0).randbytes(1000)


@pytest.fixture(name="s3", scope="module")
def fixture_s3() -> Iterator[str]:
    with s3_server("drafts") as url:
        yield url


@pytest.fixture(name="bucket")
def fixture_bucket(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectStore:
    settings = {"ENDPOINT_URL": s3, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return open_store(f"s3://drafts/{tmp_path.name}", tmp_path / "cache")


@pytest.fixture(name="store", params=["file", "s3"])
def fixture_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    store: ObjectStore = request.getfixturevalue("bucket")
    return store


def write(store: ObjectStore, offset: int, data: bytes, key: str = KEY) -> None:
    with store.draft(key).writer(offset) as writer:
        writer.write(data)


def refuses_to_finish(writer: DraftWriter) -> None:
    with pytest.raises(IngotError) as caught:
        writer.finish("sources/whole")
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "offset")


def test_a_draft_is_written_by_one_after_another(store: ObjectStore) -> None:
    assert store.draft(KEY).held() == 0
    write(store, 0, DATA[:300])
    assert store.draft(KEY).held() == 300
    write(store, 300, DATA[300:500])
    assert {draft_of(key) for key in store.keys("uploads")} == {KEY}
    with store.draft(KEY).writer(500) as writer:
        assert b"".join(writer.kept()) == DATA[:500]
        writer.write(memoryview(DATA)[500:])
        assert store.size("sources/whole") is None
        writer.finish("sources/whole")
    assert store.get("sources/whole") == DATA
    assert list(store.keys("uploads")) == []
    assert store.draft(KEY).held() == 0


def test_what_lies_behind_the_place_to_go_on_does_not_count(store: ObjectStore) -> None:
    write(store, 0, b"x" * 600)
    with store.draft(KEY).writer(0) as writer:
        assert list(writer.kept()) == []
        writer.write(DATA)
        writer.finish("sources/again")
    assert store.get("sources/again") == DATA
    write(store, 0, DATA[:600])
    with store.draft(KEY).writer(400) as writer:
        assert b"".join(writer.kept()) == DATA[:400]
        writer.write(DATA[400:])
        writer.finish("sources/middle")
    assert store.get("sources/middle") == DATA


@pytest.mark.parametrize(("held", "offset"), [(0, 1), (300, 301)])
def test_nothing_goes_on_behind_a_gap(store: ObjectStore, held: int, offset: int) -> None:
    if held:
        write(store, 0, DATA[:held])
    with pytest.raises(IngotError) as caught:
        write(store, offset, b"x")
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "offset")
    assert caught.value.expected == f"at most {held}"
    assert store.draft(KEY).held() == held
    assert len(list(store.keys("uploads"))) == bool(held)


def test_what_has_come_is_kept_however_it_ends(store: ObjectStore) -> None:
    class Gone(Exception):
        pass

    with suppress(Gone), store.draft(KEY).writer(0) as writer:
        writer.write(DATA[:10])
        raise Gone
    assert store.draft(KEY).held() == 10


def test_who_writes_nothing_leaves_nothing(store: ObjectStore) -> None:
    with store.draft(KEY).writer(0) as writer:
        writer.reserve()
    assert list(store.keys("uploads")) == []


def test_nothing_stays_of_what_is_dropped(store: ObjectStore) -> None:
    write(store, 0, DATA[:300])
    with store.draft(KEY).writer(300) as writer:
        writer.reserve()
        writer.write(DATA[300:])
        writer.drop()
    assert list(store.keys("uploads")) == []


def test_what_is_reserved_is_in_the_lists(store: ObjectStore) -> None:
    with store.draft(KEY).writer(0) as writer:
        writer.reserve()
        assert {draft_of(key) for key in store.keys("uploads")} == {KEY}
        assert store.draft(KEY).held() == 0
        writer.write(DATA)
        writer.finish("sources/reserved")
    assert store.get("sources/reserved") == DATA
    assert list(store.keys("uploads")) == []


# ---- in a folder


def test_a_file_has_one_writer_at_a_time(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with store.draft(KEY).writer(0) as writer:
        writer.write(DATA[:10])
        with pytest.raises(IngotError, match="by someone else") as caught:
            write(FileStore(tmp_path), 0, DATA)
        assert caught.value.code is ErrorCode.UNAVAILABLE
    write(store, 10, DATA[10:])


def test_who_locks_a_file_that_was_finished_meanwhile_leaves_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening a draft and locking it another process has made it whole: the locked file is a published one."""
    store, real = FileStore(tmp_path), fcntl.flock
    write(store, 0, DATA[:10])
    finished: list[bool] = []

    def finish_first(file: Any, operation: int) -> None:
        if not finished:
            finished.append(True)
            os.makedirs(tmp_path / "sources")
            os.replace(tmp_path / KEY, tmp_path / "sources/whole")
        real(file, operation)

    monkeypatch.setattr("shared_ir.storage.growing.fcntl.flock", finish_first)
    write(store, 0, b"other bytes")
    assert store.get("sources/whole") == DATA[:10]
    assert store.get(KEY) == b"other bytes"


def test_a_draft_that_was_taken_away_becomes_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with store.draft(KEY).writer(0) as writer:
        writer.write(DATA)
        store.delete(KEY)
        write(store, 0, b"of somebody else")
        refuses_to_finish(writer)
    assert store.size("sources/whole") is None
    assert store.get(KEY) == b"of somebody else"


def test_a_large_file_is_on_the_disk_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(
        "shared_ir.storage.growing.os.fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size)
    )
    piece = bytes(WINDOW_BYTES // 4)
    with FileStore(tmp_path).draft(KEY).writer(0) as writer:
        for _ in range(9):
            writer.write(piece)
        writer.finish("sources/large")
    assert len(synced) == 2
    assert (tmp_path / "sources/large").stat().st_size == 9 * len(piece)


# ---- in a bucket


def parts(*spans: tuple[int, int]) -> list[DraftPart]:
    return [DraftPart.of(f"{start}-{end}", start, end - start) for start, end in spans]


@pytest.mark.parametrize(
    ("spans", "limit", "used"),
    [
        ([], None, []),
        ([(0, 0)], None, []),
        ([(0, 0), (0, 8), (8, 16)], None, [(0, 8), (8, 16)]),
        ([(8, 16)], None, []),
        ([(0, 8), (9, 16)], None, [(0, 8)]),
        ([(0, 4), (0, 8), (8, 9)], None, [(0, 8), (8, 9)]),
        ([(0, 8), (4, 12), (6, 20), (18, 30)], None, [(0, 8), (8, 20), (20, 30)]),
        ([(0, 8), (8, 16)], 8, [(0, 8)]),
        ([(0, 8), (8, 16)], 12, [(0, 8), (8, 12)]),
        ([(0, 8)], 12, [(0, 8)]),
    ],
)
def test_parts_that_follow_on_one_another(
    spans: list[tuple[int, int]], limit: int | None, used: list[tuple[int, int]]
) -> None:
    for order in (spans, spans[::-1]):
        assert [(part.first, part.last) for part in chain(parts(*order), limit)] == used


def test_any_parts_that_cover_a_file_make_it_up() -> None:
    chance = random.Random(1)
    for _ in range(200):
        cuts = sorted(chance.sample(range(1, 99), chance.randrange(1, 6)))
        whole = list(zip([0, *cuts], [*cuts, 99], strict=True))
        others = [(start, chance.randrange(start, 99) + 1) for start in chance.sample(range(90), 5)]
        found = chain(parts(*chance.sample(whole + others, len(whole) + 5)))
        ends = [part.last for part in found]
        assert [part.first for part in found] == [0, *ends[:-1]]
        assert ends[-1] == 99
        assert all(part.start <= part.first < part.last <= part.end for part in found)


def test_a_large_object_in_a_bucket_is_made_of_parts(bucket: ObjectStore) -> None:
    data = random.Random(2).randbytes(2 * PART_BYTES + 1000)
    with bucket.draft(KEY).writer(0) as writer:
        for start in range(0, len(data), 1 << 20):
            writer.write(data[start : start + (1 << 20)])
        assert bucket.draft(KEY).held() == 2 * PART_BYTES
    assert [info.size for info in bucket.list(KEY)] == [PART_BYTES, PART_BYTES, 1000]
    assert all(sha256_hex(bucket.get(key)) == key.rpartition("-")[2] for key in bucket.keys(KEY))
    with bucket.draft(KEY).writer(len(data)) as writer:
        writer.finish("sources/large")
    assert bucket.get("sources/large") == data
    assert list(bucket.keys("uploads")) == []


def test_two_who_write_at_once_do_not_disturb_each_other(bucket: ObjectStore) -> None:
    with bucket.draft(KEY).writer(0) as first, bucket.draft(KEY).writer(0) as second:
        for writer, data in ((first, DATA), (second, b"other")):
            writer.reserve()
            writer.write(data)
        first.finish("sources/first")
        second.finish("sources/second")
    assert (bucket.get("sources/first"), bucket.get("sources/second")) == (DATA, b"other")


def test_a_part_that_is_not_what_it_was_is_sent_again(bucket: ObjectStore) -> None:
    write(bucket, 0, DATA[:600])
    (key,) = bucket.keys("uploads")
    bucket.put(key, b"x" * 600)
    with bucket.draft(KEY).writer(600) as writer:
        writer.write(DATA[600:])
        refuses_to_finish(writer)
    assert bucket.size("sources/whole") is None
    assert bucket.draft(KEY).held() == 0


def test_parts_that_somebody_took_away_are_missed(bucket: ObjectStore) -> None:
    write(bucket, 0, DATA[:600])
    with bucket.draft(KEY).writer(600) as writer:
        bucket.delete(next(bucket.keys("uploads")))
        writer.write(DATA[600:])
        refuses_to_finish(writer)
    assert bucket.size("sources/whole") is None


def test_a_store_that_is_away_at_the_end_hides_no_error(bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(draft: PartsDraft, start: int, data: bytes) -> DraftPart:
        raise IngotError(ErrorCode.UNAVAILABLE, "away")

    def fail() -> None:
        with bucket.draft(KEY).writer(0) as writer:
            writer.write(DATA)
            raise ValueError("first")

    monkeypatch.setattr(PartsDraft, "put", away)
    with pytest.raises(ValueError, match="first"):
        fail()


# ---- abandoned


def test_an_upload_is_abandoned_when_its_last_part_is_old() -> None:
    name = f"{0:016d}-{'0' * 64}"
    found = [
        ObjectInfo("uploads/a.1", 1, 10.0),
        ObjectInfo(f"uploads/b.1/{name}", 1, 10.0),
        ObjectInfo(f"uploads/b.1/{name.replace('0-', '1-')}", 1, 90.0),
        ObjectInfo(f"uploads/c.1/{name}", 1, 10.0),
        ObjectInfo("uploads/n/d.1", 1, 90.0),
    ]
    assert [info.key for info in abandoned(found, 50.0)] == ["uploads/a.1", f"uploads/c.1/{name}"]
