"""One contract, two kinds of store: a directory and an S3 endpoint."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from shared_ir.artifact.generation import GENERATION, generation, tell_readers
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.local import FileStore
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.remote import RemoteStore
from shared_ir.storage.store import open_store


@pytest.fixture(name="s3", scope="module")
def fixture_s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(name="bucket")
def fixture_bucket(s3: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    name = f"bucket{abs(hash(request.node.name))}"
    client = boto3.client("s3", endpoint_url=s3, region_name="us-east-1")
    client.create_bucket(Bucket=name)
    return f"s3://{name}/some/prefix"


@pytest.fixture(name="store", params=["file", "s3"])
def fixture_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    return open_store(request.getfixturevalue("bucket"), tmp_path / "cache")


def test_put_get_list_delete(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"from a file")
    store.put("a/b/1", b"one")
    store.put("a/b/2", memoryview(b"two"))
    store.put("a/c", tmp_path / "file")
    store.put("ab", b"")
    assert store.get("a/b/1") == b"one"
    assert store.get("a/c") == b"from a file"
    assert store.get("ab") == b""
    assert store.size("a/b/2") == 3
    assert store.size("a/b") is None
    assert [info.key for info in store.list("a")] == ["a/b/1", "a/b/2", "a/c"]
    assert [info.size for info in store.list("a/b")] == [3, 3]
    assert list(store.list("none")) == []
    store.put("a/b/1", b"new")
    assert store.get("a/b/1") == b"new"
    store.delete("a/b/1")
    store.delete("a/b/1")
    assert store.size("a/b/1") is None


def test_what_is_too_large_is_not_read(store: ObjectStore) -> None:
    store.put("a/large", b"x" * 1001)
    assert store.get("a/large", 1001) == b"x" * 1001
    with pytest.raises(IngotError) as caught:
        store.get("a/large", 1000)
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
    assert (caught.value.expected, caught.value.received) == ("at most 1000 bytes", "1001 bytes")


def test_ranges(store: ObjectStore) -> None:
    store.put("x", bytes(range(100)))
    assert store.get_range("x", 10, 5) == bytes(range(10, 15))
    assert store.get_range("x", 95, 50) == bytes(range(95, 100))
    assert store.get_range("x", 100, 5) == b""


def test_missing_objects(store: ObjectStore) -> None:
    for call in (store.get, store.local_path, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(IngotError) as caught:
            call("nothing/here")
        assert caught.value.code is ErrorCode.NOT_FOUND


def test_of_many_writers_one_wins(store: ObjectStore) -> None:
    barrier = threading.Barrier(8)

    def write(number: int) -> bool:
        barrier.wait()
        return store.put_if_absent("claim", str(number).encode())

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert won.count(True) == 1
    assert store.get("claim") == str(won.index(True)).encode()


def test_local_path_follows_the_object(store: ObjectStore) -> None:
    store.put("x", b"1" * 1000)
    first = store.local_path("x")
    assert first.read_bytes() == b"1" * 1000
    assert store.local_path("x") == first
    store.put("x", b"2" * 1000)
    assert store.local_path("x").read_bytes() == b"2" * 1000


@pytest.mark.parametrize("key", ["", "/a", "a/", "../a", "a/../b", "a//b", ".hidden", "a/.b", "a b", "a\n", "é"])
def test_keys_cannot_leave_the_store(store: ObjectStore, key: str) -> None:
    for call in (lambda: store.put(key, b""), lambda: store.get(key), lambda: store.size(key)):
        with pytest.raises(IngotError) as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_who_writes_an_object_anew_gives_it_another_tag_in_lists(store: ObjectStore) -> None:
    def tags() -> dict[str, str]:
        return {info.key: info.tag for info in store.list("t")}

    store.put("t/a", b"1")
    store.put("t/b/c", b"1")
    before = tags()
    assert before.keys() == {"t/a", "t/b/c"}
    assert all(before.values())
    assert tags() == before
    store.put("t/a", b"2")  # of the same size, and perhaps in the same second
    assert tags()["t/a"] != before["t/a"]
    assert tags()["t/b/c"] == before["t/b/c"]


def test_a_change_is_told_to_readers(store: ObjectStore) -> None:
    assert generation(store) == ""
    seen = set()
    for _ in range(3):
        tell_readers(store)
        seen.add(generation(store))
        assert generation(store) in seen
    assert len(seen) == 3
    with store.holding():
        assert store.local_path(GENERATION).read_bytes() == store.get(GENERATION)


def test_who_cannot_tell_readers_goes_on(tmp_path: Path) -> None:
    """What he has changed is changed; they look once in a while."""
    refuses = FileStore(tmp_path)

    def put(key: str, data: object) -> None:
        raise IngotError(ErrorCode.UNAVAILABLE, "the store refuses it")

    object.__setattr__(refuses, "put", put)
    tell_readers(refuses)
    assert generation(refuses) == ""


def test_links_and_pipes_are_no_objects(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of somebody else")
    store = FileStore(tmp_path / "store")
    store.put("a/real", b"1")
    (store.root / "a/link").symlink_to(tmp_path / "secret")
    os.mkfifo(store.root / "a/pipe")
    (store.root / "a/folder").mkdir()
    assert [info.key for info in store.list("a")] == ["a/real"]
    for key in ("a/link", "a/pipe", "a/folder"):
        assert store.size(key) is None
        for read in (store.get, store.local_path):
            with pytest.raises(IngotError) as caught:
                read(key)
            assert caught.value.code is ErrorCode.NOT_FOUND


def test_a_file_being_written_is_not_listed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.put("a/x", b"1")
    (tmp_path / "a" / ".y.tmp").write_bytes(b"half")
    assert [info.key for info in store.list("a")] == ["a/x"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    store.put("a", b"old")
    with pytest.raises(FileNotFoundError):
        store.put("a", tmp_path / "missing")
    assert [p.name for p in (tmp_path / "store").iterdir()] == ["a"]
    assert store.get("a") == b"old"


def test_the_cache_is_bounded(bucket: str, tmp_path: Path) -> None:
    store = RemoteStore.open(bucket, tmp_path / "cache", limit=2500)
    for number in range(5):
        store.put(f"x{number}", bytes([number]) * 1000)
        assert store.local_path(f"x{number}").read_bytes() == bytes([number]) * 1000
    kept = [p for p in (tmp_path / "cache").glob("*/*") if p.is_file()]
    assert sum(p.stat().st_size for p in kept) <= 2500
    assert store.local_path("x0").read_bytes() == bytes([0]) * 1000


def test_an_unreachable_store_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "t"), ("SECRET_ACCESS_KEY", "t"), ("ENDPOINT_URL", "http://127.0.0.1:1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    store = open_store("s3://bucket", tmp_path)
    with pytest.raises(IngotError) as caught:
        store.get("x")
    assert caught.value.code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize("url", ["http://x/y", "s3://", "file://host/path", "redis://x", "s3://[", "file:///a#b"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(IngotError, match="not the URL of an object store; at field 'INGOT_STORE_URL'"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    ["s3://key:secret@b/p", "s3://b/p?secret_access_key=secret", "az://secret@c", "http://a:secret@b", "gs://b#secret"],
)
def test_credentials_are_no_part_of_a_url_and_are_not_shown(url: str) -> None:
    with pytest.raises(IngotError, match=r"not the URL of an object store.*Credentials go into variables") as caught:
        open_store(url)
    assert "secret@" not in str(caught.value)
    assert "=secret" not in str(caught.value)
    assert "#secret" not in str(caught.value)


def test_a_store_that_lacks_a_setting_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(IngotError, match=r"Account must be specified\. Name the account in AZURE_STORAGE") as caught:
        open_store("az://container/prefix")
    assert "\n" not in str(caught.value)


def test_of_many_who_replace_what_they_read_one_wins(store: ObjectStore) -> None:
    store.put("a/count", b"0")
    barrier = threading.Barrier(6)

    def count(_: int) -> int:
        barrier.wait()
        lost = 0
        while True:
            data, tag = store.get_tagged("a/count")
            if store.replace("a/count", str(int(data) + 1).encode(), tag):
                return lost
            lost += 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(count, range(6)))
    assert store.get("a/count") == b"6"


def test_what_is_not_there_or_has_changed_is_not_replaced(store: ObjectStore) -> None:
    store.put("x", b"1")
    _, tag = store.get_tagged("x")
    assert not store.replace("y", b"new", tag)
    assert store.size("y") is None
    store.put("x", b"2")
    assert not store.replace("x", b"new", tag)
    assert store.get("x") == b"2"


def test_lists_go_on_after_a_key(store: ObjectStore) -> None:
    for key in ("a/b/1", "a/b/2", "a/b-c/1", "a/c", "a/d/e/1", "b/1"):
        store.put(key, b"1")
    everything = ["a/b-c/1", "a/b/1", "a/b/2", "a/c", "a/d/e/1"]
    assert list(store.keys("a")) == everything
    for number, key in enumerate(everything):
        assert list(store.keys("a", key)) == [i.key for i in store.list("a", key)] == everything[number + 1 :]
    assert list(store.keys("a", "a/b/0")) == everything[1:]
    assert list(store.keys("a", "a/zzz")) == []
    assert store.folders("a") == ("b", "b-c", "d")
    assert store.folders("none") == ()


def test_an_identity_is_that_of_one_state(store: ObjectStore) -> None:
    assert store.identity("x") is None
    store.put("x", b"1" * 2_000_000)
    first = store.identity("x")
    assert first is not None
    assert first.size == 2_000_000
    assert store.identity("x") == first
    assert b"".join(store.pieces("x")) == b"1" * 2_000_000
    store.put("x", b"2" * 2_000_000)
    assert store.identity("x") != first


def test_what_was_written_lately_is_not_deleted_as_unused(store: ObjectStore) -> None:
    store.put("x", b"1")
    assert not store.delete_unused("x", time.time() - 60)
    assert store.size("x") == 1
    assert store.delete_unused("x", time.time() + 60)
    assert store.size("x") is None
    assert not store.delete_unused("x", time.time() + 60)


OPERATIONS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("a/b"),
    "put": lambda store: store.put("a/b", b"x"),
    "size": lambda store: store.size("a/b"),
    "list": lambda store: list(store.list("a")),
    "delete": lambda store: store.delete("a/b"),
    "local_path": lambda store: store.local_path("a/b"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_clients_are_not_told_where_the_store_is(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    store = open_store("s3://secret-bucket/secret-prefix", tmp_path / "cache")
    with pytest.raises(IngotError) as caught:
        OPERATIONS[operation](store)
    for text in ("secret-bucket", "secret-prefix", "127.0.0.1", "http", "Error", "{", "<", "\n"):
        assert text not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "secret-bucket" in caplog.text
