"""Files on their way: what a quota counts of them, where they go on, and whose fault it is when they are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_service.compiler.frontend.reading.arriving import ArrivingModel
from compiler_service.store.sources import Look, SourceStore, UploadAnnouncement, accept
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store
from tests.ingot.small_models import scale
from tests.services.s3_server import s3_server

MODEL = scale().SerializeToString()
SHA256 = sha256_hex(MODEL)
MEGABYTE = 1 << 20


@pytest.fixture(name="s3", scope="module")
def fixture_s3() -> Iterator[str]:
    with s3_server("sources") as url:
        yield url


@pytest.fixture(name="store", params=["file", "s3"])
def fixture_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    url = request.getfixturevalue("s3")
    settings = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return open_store(f"s3://sources/{tmp_path.name}", tmp_path / "cache")


@pytest.fixture(name="sources")
def fixture_sources(store: ObjectStore) -> SourceStore:
    return SourceStore(store, 1 << 40)


def begin(sources: SourceStore, data: bytes, size: int, sha256: str = SHA256, limit: int = 0) -> None:
    """An upload that breaks off."""
    with pytest.raises(IngotError, match="ended early"):
        sources.receive(UploadAnnouncement("m", size, sha256, namespace="vision", limit=limit), [data])


def send(
    sources: SourceStore, data: bytes, offset: int = 0, look: Look = accept, size: int = 0, limit: int = 0
) -> IngotError | None:
    """What the upload of all of ``data`` is refused with."""
    upload = UploadAnnouncement("m", size or len(data), sha256_hex(data), offset, "vision", limit)
    try:
        sources.receive(upload, [data[offset:]], look)
    except IngotError as error:
        return error
    return None


def test_a_file_that_is_there_has_one_size(sources: SourceStore) -> None:
    assert send(sources, MODEL) is None
    refused = send(sources, MODEL, size=len(MODEL) + 1_000_000)
    assert refused is not None
    assert (refused.code, refused.field) == (ErrorCode.INVALID_ARGUMENT, "size")
    assert (refused.expected, refused.received) == (f"{len(MODEL)} bytes", f"{len(MODEL) + 1_000_000} bytes")
    assert sources.held("vision") == len(MODEL)
    assert send(sources, MODEL) is None


def test_uploads_of_a_digest_count_by_their_sizes(sources: SourceStore) -> None:
    """Whatever else comes to be there of that digest."""
    for number in range(3):
        begin(sources, b"x", 1_000_000 + number)
    begin(sources, MODEL[:10], len(MODEL))
    assert send(sources, MODEL) is None
    assert sources.held("vision") == 3_000_003 + len(MODEL)
    refused = send(sources, b"y" * 100, limit=3_000_100)
    assert refused is not None
    assert (refused.code, refused.field) == (ErrorCode.LIMIT_EXCEEDED, "bytes")


def test_an_upload_that_begins_over_and_over_counts_what_lies_there(store: ObjectStore) -> None:
    """In a bucket parts that were sent by several lie beside one another."""
    sources, size = SourceStore(store, 1 << 40), 2 * MEGABYTE
    for number in range(3):
        begin(sources, bytes([number]) * (size - 1), size)
    lying = sum(info.size for info in store.list("uploads/vision"))
    assert sources.held("vision") == max(size, lying)
    assert lying > 5 * MEGABYTE or store.url.startswith("file:")


def test_an_upload_goes_on_where_one_of_its_size_is(sources: SourceStore) -> None:
    begin(sources, MODEL[:60], len(MODEL) + 7)
    begin(sources, MODEL[:20], len(MODEL))
    assert sources.received(SHA256, len(MODEL) + 7, "vision") == (60, False)
    assert sources.received(SHA256, len(MODEL), "vision") == (20, False)
    assert sources.received(SHA256, 0, "vision") == (0, False)
    assert sources.received(SHA256, len(MODEL) + 8, "vision") == (0, False)
    assert send(sources, MODEL, 20) is None
    for size in (0, len(MODEL)):
        assert sources.received(SHA256, size, "vision") == (len(MODEL), True)


@pytest.mark.parametrize("kept", [b"\xff\xd8\xff" + bytes(47), b"\x3a" + bytes([len(MODEL) - 60]) + b"x" * 48])
def test_bytes_of_others_are_not_laid_to_a_model(sources: SourceStore, kept: bytes) -> None:
    """Neither such as are no model, nor such as make none of what follows them."""
    begin(sources, kept, len(MODEL))
    refused = send(sources, MODEL, len(kept), ArrivingModel(len(MODEL)).feed)
    assert refused is not None
    assert refused.code is ErrorCode.CHECKSUM_MISMATCH
    assert sources.received(SHA256, len(MODEL), "vision") == (0, False)
    assert send(sources, MODEL, look=ArrivingModel(len(MODEL)).feed) is None


def test_what_is_no_model_is_refused_as_such_from_its_beginning(sources: SourceStore) -> None:
    picture = b"\xff\xd8\xff" + bytes(100)
    refused = send(sources, picture, look=ArrivingModel(len(picture)).feed)
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_MODEL
    assert sources.held("vision") == 0
