"""A store is the one that it was, or it is away: it never begins anew where one was seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.mark import MARK
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store

USES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("models/b", b"b"),
    "put if absent": lambda store: store.put_if_absent("models/b", b"b"),
    "replace": lambda store: store.replace("models/b", b"b", "tag"),
    "get": lambda store: store.get("models/a"),
    "size": lambda store: store.size("models/a"),
    "identity": lambda store: store.identity("models/a"),
    "keys": lambda store: list(store.keys("models")),
    "list": lambda store: list(store.list("models")),
    "folders": lambda store: store.folders("models"),
    "delete": lambda store: store.delete("models/a"),
    "delete unused": lambda store: store.delete_unused("models/a", 0.0),
    "local path": lambda store: store.local_path("models/a"),
    "draft": lambda store: store.draft("models/b").held(),
}


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(root: Path, begins: bool = True, home: str = "home") -> ObjectStore:
    """As a process of an installation does."""
    return open_store(str(root), marks=Memory(root.parent / home / "seen.db"), begins=begins)


def is_away(store: ObjectStore, use: str = "get") -> bool:
    try:
        USES[use](store)
    except IngotError as error:
        return error.code is ErrorCode.UNAVAILABLE
    return False


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a file"])
@pytest.mark.parametrize("started", ["before", "after"])
def test_a_store_that_is_gone_is_away_and_comes_back(root: Path, use: str, left: str, started: str) -> None:
    store = opened(root)
    store.put("models/a", b"a")
    root.rename(root.with_name("elsewhere"))
    if left == "an empty folder":
        root.mkdir()
    elif left == "a file":
        root.write_bytes(b"")
    if started == "after":
        store = opened(root)
    assert is_away(store, use)
    assert not root.is_dir() or not list(root.iterdir()), "nothing is written into the void"
    if root.exists():
        root.unlink() if root.is_file() else root.rmdir()
    root.with_name("elsewhere").rename(root)
    assert store.get("models/a") == b"a"


def test_a_mark_alone_that_is_gone(root: Path) -> None:
    """As where it is no longer the volume but a copy of an older one: what has folders of a store is one of before marks."""
    store = opened(root)
    store.put("models/a", b"a")
    (root / MARK).unlink()
    assert is_away(store)
    assert is_away(opened(root)), "it was seen with a mark"


def test_another_store_is_not_this_one(root: Path) -> None:
    store = opened(root)
    store.put("models/a", b"a")
    other = root.with_name("other")
    opened(other, home="another").put("models/a", b"other")
    root.rename(root.with_name("elsewhere"))
    other.rename(root)
    assert is_away(store)
    assert is_away(opened(root))
    (root.parent / "home" / "seen.db").unlink()
    assert opened(root).get("models/a") == b"other", "once it is told that this was on purpose"


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"id": "other"}'])
def test_a_mark_that_was_changed_is_none(root: Path, text: bytes) -> None:
    store = opened(root)
    store.put("models/a", b"a")
    (root / MARK).write_bytes(text)
    assert is_away(store)
    assert is_away(opened(root))


def test_a_store_of_before_marks_gets_one(root: Path) -> None:
    open_store(str(root)).put("models/a", b"a")
    memory = Memory(root.parent / "home" / "seen.db")
    memory.remember(f"{root.as_uri()}/models/a/versions", 1)
    assert opened(root).get("models/a") == b"a"
    assert (root / MARK).is_file()
    shutil.rmtree(root)
    assert is_away(opened(root))


def test_one_that_nothing_marks_and_that_was_seen_does_not_begin_anew(root: Path) -> None:
    """A service of before marks ran here, and its volume was not mounted when it was updated."""
    memory = Memory(root.parent / "home" / "seen.db")
    memory.remember(f"{root.as_uri()}/models/a/versions", 1)
    root.mkdir()
    assert is_away(opened(root), "put")
    assert is_away(opened(root, begins=False))


def test_a_reader_begins_no_store(root: Path) -> None:
    store = opened(root, begins=False)
    assert store.folders("models") == ()
    assert not root.exists()
    opened(root, home="writer").put("models/a", b"a")
    assert store.get("models/a") == b"a"
    shutil.rmtree(root)
    assert is_away(store)
    assert is_away(opened(root, begins=False))


def test_what_was_seen_that_cannot_be_read_takes_the_store_for_what_it_is(root: Path) -> None:
    opened(root).put("models/a", b"a")
    (root.parent / "home" / "seen.db").write_bytes(b"damaged" * 1000)
    assert opened(root).get("models/a") == b"a"
