"""Contents are what their digest says, and take no more room than they may."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

from ingot.device.contents import ContentCache, size_of
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError

PAGE = mmap.PAGESIZE


@pytest.fixture(name="cache")
def make_cache() -> Iterator[ContentCache]:
    cache = ContentCache(4 * PAGE)
    yield cache
    cache.close()


def put(cache: ContentCache, data: bytes) -> str:
    digest = sha256_hex(data)
    cache.put(digest, len(data), [data[:10], data[10:]])
    return digest


def test_what_was_put_is_there(cache: ContentCache) -> None:
    data = b"weights" * 100
    digest = put(cache, data)
    assert cache.missing([digest, "0" * 64, digest, "0" * 64]) == ["0" * 64]
    with cache.borrowed([digest]) as found:
        assert os.pread(found[digest], 10_000, 0) == data
        assert size_of(found[digest]) == len(data)


def test_it_cannot_be_changed(cache: ContentCache) -> None:
    digest = put(cache, b"code" * 10)
    with cache.borrowed([digest]) as found:
        with pytest.raises(PermissionError):
            os.pwrite(found[digest], b"evil", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(found[digest], 1)


@pytest.mark.parametrize(
    "sent", [b"", b"short", b"other-bytes-of-this-length", b"announced-bytes-are-fewer-than-these"]
)
def test_other_bytes_than_announced(cache: ContentCache, sent: bytes) -> None:
    announced = b"announced-bytes-are-others"
    with pytest.raises(IngotError) as caught:
        cache.put(sha256_hex(announced), len(announced), [sent])
    assert caught.value.code is ErrorCode.CHECKSUM_MISMATCH
    assert cache.missing([sha256_hex(announced)])


def test_what_was_not_used_for_longest_makes_room(cache: ContentCache) -> None:
    first, second, third, fourth = (put(cache, bytes([n]) * PAGE) for n in range(4))
    cache.missing([first])
    fifth = put(cache, b"5" * PAGE)
    assert cache.missing([first, second, third, fourth, fifth]) == [second]


def test_what_is_borrowed_stays_good(cache: ContentCache) -> None:
    first = put(cache, b"1" * PAGE)
    with cache.borrowed([first]) as found:
        put(cache, b"2" * 4 * PAGE)
        assert cache.missing([first]) == [first]
        assert os.pread(found[first], 3, 0) == b"111"


def test_what_is_larger_than_all_of_it_is_refused_unread(cache: ContentCache) -> None:
    def unread() -> Iterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    with pytest.raises(IngotError) as caught:
        cache.put("0" * 64, 4 * PAGE + 1, unread())
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED


def test_what_is_not_there_cannot_be_borrowed(cache: ContentCache) -> None:
    digest = put(cache, b"here")
    with pytest.raises(IngotError) as caught, cache.borrowed([digest, "0" * 64]):
        raise AssertionError("it was borrowed")
    assert (caught.value.code, caught.value.field) == (ErrorCode.NOT_FOUND, "0" * 64)


def test_no_descriptor_is_left(cache: ContentCache) -> None:
    put(cache, b"1" * PAGE)
    before = len(os.listdir("/proc/self/fd"))
    for n in range(8):
        digest = put(cache, bytes([n]) * 4 * PAGE)
        put(cache, bytes([n]) * 4 * PAGE)
        with pytest.raises(IngotError):
            cache.put("0" * 64, 1, [b"x"])
        with cache.borrowed([digest]):
            pass
    assert len(os.listdir("/proc/self/fd")) == before
