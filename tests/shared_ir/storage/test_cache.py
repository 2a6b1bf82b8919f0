"""Local copies: bounded, the least recently used go first, and what somebody holds stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.cache import ObjectCache

CLOCK = count(1_000_000_000)
"""Seconds at which copies were used: the clock of a file system is coarser than a test is fast."""


def name(letter: str) -> str:
    return letter * 64


def use(cache: ObjectCache, letter: str) -> Path:
    """As a store does: the copy that is there, or a new one, of 100 bytes."""
    path = cache.find(name(letter)) or cache.add(name(letter), iter([letter.encode() * 100]))
    now = next(CLOCK)
    os.utime(path, (now, now))
    return path


def there(cache: ObjectCache) -> str:
    return "".join(sorted(path.name[0] for path in cache.directory.glob("*/*") if not path.name.startswith(".")))


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 300)
    for letter in "abcada":
        use(cache, letter)
    assert there(cache) == "acd"
    use(cache, "e")
    assert there(cache) == "ade"
    assert there(ObjectCache(tmp_path, 0)) == "ade"


def test_without_a_limit_everything_stays(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 0)
    for letter in "abcdef":
        use(cache, letter)
    assert there(cache) == "abcdef"


def test_what_is_held_stays_until_it_is_not(tmp_path: Path) -> None:
    cache, neighbour = ObjectCache(tmp_path, 150), ObjectCache(tmp_path, 150)
    with cache.holding():
        paths = [
            use(cache, letter) for letter in "abc"
        ]  # one after the other, for a model that takes more than there is room for
        use(neighbour, "x")
        assert [path.read_bytes() for path in paths] == [letter.encode() * 100 for letter in "abc"]
        with cache.holding():
            use(cache, "d")
        assert set("abc") <= set(there(cache))
    assert len(there(cache)) == 1


def test_what_another_process_holds_stays_and_no_longer_than_that_lives(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 150)
    use(cache, "a")
    code = (
        "import sys, pathlib; from shared_ir.storage.cache import ObjectCache\n"
        "cache = ObjectCache(pathlib.Path(sys.argv[1]), 150)\n"
        "with cache.holding():\n    assert cache.find('a' * 64)\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for letter in "bc":
            use(cache, letter)
        assert there(cache) == "ac"
        holder.kill()
    use(cache, "d")
    assert there(cache) == "d"


def test_threads_and_processes_at_once_get_whole_copies(tmp_path: Path) -> None:
    """Each reads what it was given while others push it out."""

    def work(seed: int) -> int:
        cache, found = ObjectCache(tmp_path, 250), 0
        for step in range(60):
            letter = "abcdef"[(step * 5 + seed) % 6]
            with cache.holding():
                path = cache.find(name(letter)) or cache.add(name(letter), iter([letter.encode() * 100]))
                found += path.read_bytes() == letter.encode() * 100
        return found

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == [60] * 6
    use(ObjectCache(tmp_path, 250), "z")
    assert len(there(ObjectCache(tmp_path))) <= 2


def test_what_a_killed_process_was_writing_goes_after_a_day(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, 500)
    use(cache, "a")
    old, new = (cache.path(name("a")).with_name(f".{age}.tmp") for age in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 90_000,) * 2)
    use(cache, "b")
    assert (old.exists(), new.exists()) == (False, True)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("shared_ir.storage.cache.os.fsync", full)
    with pytest.raises(IngotError) as caught:
        ObjectCache(tmp_path).add(name("a"), iter([b"a"]))
    assert caught.value.code is ErrorCode.DISK_FULL
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_broken_download_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise OSError("connection lost")

    with pytest.raises(OSError, match="connection lost"):
        ObjectCache(tmp_path).add("ab" * 32, chunks())
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
