"""The API orders, a worker signs: what the key of the API is good for, and what it is not."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from compiler_service.jobs.clerk import Clerk, OrderedWrites, signing_key_id, writes_of
from compiler_service.jobs.records import Submission
from compiler_service.keys import api_keys, worker_keys
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import Parts, make_parts
from shared_ir.artifact.published import PublishedLabel, artifact_path, label_document, label_path
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustFolder
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.pages import changes_page
from shared_ir.storage.protocol import ObjectStore
from tests.compiler_service.jobs.mortal import Installation
from tests.services.artifacts import toy_artifact
from tests.services.by_hand import Platform
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

pytestmark = pytest.mark.services


class Nowhere:
    def send(self, stage: Any, job: str, target: int, kind: str = "") -> None:
        """Work is done by hand."""

    def waiting(self, kinds: Any) -> Any:
        return {}


class Counting:
    """A store that notes what is deleted of it."""

    def __init__(self, store: ObjectStore, deleted: list[str]) -> None:
        self._store, self._deleted = store, deleted

    def delete_unused(self, key: str, before: float) -> bool:
        self._deleted.append(key)
        return self._store.delete_unused(key, before)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Split:
    """A worker, and an API with a home and a key of its own; they share a store, Redis and a folder of public keys."""

    def __init__(self, home: Path, url: str) -> None:
        self.worker = Platform(home / "worker", url)
        self.settings = CompilerSettings(
            redis_url=url,
            home=home / "api",
            store_url=(home / "worker" / "store").as_uri(),
            trust=str(home / "worker" / "trust"),
        )
        self.api: Parts = make_parts(self.settings, ToyCompiler(), Nowhere(), STAGE_COMMAND, api_keys(self.settings))
        self.redis = self.worker.parts.service.store.redis
        self.clerk = self.make_clerk()

    def make_clerk(self) -> Clerk:
        parts = self.worker.parts
        registry, trust = parts.repository, parts.keys.order_trust
        return Clerk(self.redis, registry.store, trust, writes_of(registry), parts.signer.key_id)

    def packet(self) -> str:
        """An order that nobody has taken, of one that waits in vain."""
        writes = OrderedWrites.over(self.redis, self.api.keys.sealer, seconds=0.3)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(writes.order, "set_label", name="m", label="canary", number=1)
            packet = str(self.redis.blpop(["ingot:writes"], timeout=5)[1])
            with pytest.raises(IngotError, match="has not answered yet"):
                waiting.result()
        return packet


@pytest.fixture(name="split")
def fixture_split(tmp_path: Path) -> Iterator[Split]:
    with redis_server() as url:
        split = Split(tmp_path, url)
        repository, key = split.worker.parts.repository, split.worker.key({"name": "m"})
        repository.put_artifact(toy_artifact("m", key=key))
        repository.publish("m", [key])
        yield split


@pytest.fixture(name="running")
def fixture_running(split: Split) -> Iterator[Split]:
    stopping = threading.Event()
    thread = split.clerk.start(stopping)
    yield split
    stopping.set()
    thread.join()


def test_the_api_has_no_key_that_anybody_loads_code_of(split: Split) -> None:
    assert not (split.settings.home / "signing.pem").exists()
    with pytest.raises(IngotError, match="no key to sign"):
        _ = split.api.signer
    sealer = split.api.keys.sealer
    assert sealer.key_id not in TrustFolder(split.settings.trust_directory).keys
    assert sealer.key_id in TrustFolder(split.settings.orders_directory).keys
    version = split.worker.parts.repository.version("m", 1)
    forged = PublishedLabel("m", "stable", 1, version.index.digest, time.time_ns(), time.time_ns())
    split.worker.parts.repository.store.put(label_path("m", "stable"), label_document(forged, sealer))
    for parts in (split.api, split.worker.parts):
        assert parts.repository.labels("m") == {}


def test_labels_are_set_by_a_worker(running: Split) -> None:
    repository = running.api.repository
    repository.set_label("m", "stable", 1)
    assert repository.labels("m") == {"stable": 1}
    with pytest.raises(IngotError) as caught:
        repository.set_label("m", "stable", 7)
    assert caught.value.code is ErrorCode.NOT_FOUND
    repository.delete_label("m", "stable")
    assert repository.labels("m") == {}
    assert signing_key_id(running.redis) == running.worker.parts.signer.key_id


def test_an_api_whose_key_is_revoked_orders_nothing(running: Split) -> None:
    (public,) = running.settings.orders_directory.glob("*.pub")
    kept = public.read_bytes()
    public.unlink()
    order = Submission("n", running.worker.upload({"name": "n"}), ("x86-64-v3",), {})
    for ask in (
        lambda: running.api.repository.set_label("m", "stable", 1),
        lambda: running.api.service.submit(order),
    ):
        with pytest.raises(IngotError, match="was revoked while it ran") as caught:
            ask()
        assert caught.value.code is ErrorCode.UNAVAILABLE
    assert running.api.service.orders.unfinished() == []
    assert running.api.service.store.active_count() == 0
    public.write_bytes(kept)
    running.api.repository.set_label("m", "stable", 1)
    assert running.api.service.submit(order).id


@pytest.mark.parametrize(
    "order", [b"\xff\xfe", b"[" * 100_000, b"[1]", b'{"order":"' + b"[" * 100_000 + b'","key":"","seal":""}']
)
def test_what_is_no_order_does_not_end_the_clerk(running: Split, order: bytes) -> None:
    raw = Redis.from_url(running.settings.redis_url)
    raw.rpush("ingot:writes", order)
    running.api.repository.set_label("m", "stable", 1)
    assert running.api.repository.labels("m") == {"stable": 1}


def test_what_the_api_finds_is_marked_as_used(running: Split) -> None:
    """It has no key, and needs none for that: what it answers from is not collected as if nobody had used it."""
    repository = running.worker.parts.repository
    path = artifact_path(running.worker.key({"name": "m"}))
    old = time.time() - 40 * 24 * 3600
    os.utime(running.worker.store / path, (old, old))
    before = repository.store.get(path)
    reader = ArtifactRepository(repository.store, repository.trust)
    assert reader.find_artifact(running.worker.key({"name": "m"})) is not None
    assert repository.store.identity(path).modified < old + 1  # type: ignore[union-attr]  # a runtime writes nothing
    order = Submission("m", running.worker.upload({"name": "m"}), ("x86-64-v3",), {})
    assert running.api.service.submit(order).version == 1
    assert repository.store.identity(path).modified > old + 1  # type: ignore[union-attr]
    assert repository.store.get(path) == before


def test_an_order_that_the_worker_does_not_know_is_answered(running: Split) -> None:
    writes = OrderedWrites.over(running.redis, running.api.keys.sealer)
    with pytest.raises(IngotError, match="knows no 'delete_everything'") as caught:
        writes.order("delete_everything", name="m")
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_what_takes_long_is_waited_for_once_a_worker_has_taken_it(split: Split) -> None:
    def slow(name: str) -> int:
        time.sleep(1.2)
        return len(name)

    parts = split.worker.parts
    clerk = Clerk(split.redis, parts.repository.store, parts.keys.order_trust, {"slow": slow}, "key")
    writes, stopping = OrderedWrites.over(split.redis, split.api.keys.sealer, seconds=0.3), threading.Event()
    thread = clerk.start(stopping)
    try:
        assert writes.order("slow", 20.0, name="abc") == 3
        with pytest.raises(IngotError, match="has not answered yet"):
            writes.order("slow", name="abc")
    finally:
        stopping.set()
        thread.join()


def test_deletions_are_done_by_a_worker_and_signed_by_it(running: Split) -> None:
    registry, worker = running.api.repository, running.worker.parts.repository
    registry.set_label("m", "stable", 1, by="ann")
    with pytest.raises(IngotError) as caught:
        registry.delete_version("m", 1, "ann")
    assert caught.value.code is ErrorCode.CONFLICT
    registry.delete_label("m", "stable", "ann", registry.all_labels("m").found["stable"].etag)
    registry.delete_version("m", 1, "ann")
    deleted = worker.proven.deletion("m", 1)
    assert deleted is not None
    assert deleted.by == "ann"
    assert [(own.action, own.by) for own in changes_page(registry).items][:3] == [
        ("delete-version", "ann"),
        ("delete-label", "ann"),
        ("set-label", "ann"),
    ]


def test_a_cached_job_may_name_labels(running: Split) -> None:
    source = running.worker.upload({"name": "m"})
    order = Submission("m", source, ("x86-64-v3",), {}, ("stable",), user="ann")
    assert running.api.service.submit(order).version == 1
    assert running.api.repository.labels("m") == {"stable": 1}
    assert changes_page(running.api.repository).items[0].by == "ann"


def test_what_a_job_publishes_is_of_who_submitted_it(tmp_path: Path) -> None:
    with redis_server() as url:
        process = Installation(tmp_path, url).process()
        process.submit({"name": "n"}, "n", ("x86-64-v3",), user="ann", labels=("stable",))
        process.work()
        process.submit({"name": "o"}, "o", ("x86-64-v3",))
        process.work()
        told = [(own.action, own.model, own.by.partition(" ")[0]) for own in changes_page(process.repository).items]
    assert told == [("publish", "o", "job"), ("set-label", "n", "ann"), ("publish", "n", "ann")]


def test_workers_take_jobs_that_the_api_has_sealed(split: Split) -> None:
    source = split.worker.upload({"name": "new"})
    job = split.api.service.submit(Submission("new", source, ("x86-64-v3",), {})).id
    assert split.worker.parts.service.store.get(job).name == "new"
    (split.settings.orders_directory / f"{split.api.keys.sealer.key_id}.pub").unlink()
    with pytest.raises(IngotError) as caught:
        split.worker.parts.service.store.get(job)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_without_a_worker_the_call_says_so(split: Split) -> None:
    writes = OrderedWrites.over(split.redis, split.api.keys.sealer, seconds=0.1)
    with pytest.raises(IngotError, match="no worker is there") as caught:
        writes.order("set_label", name="m", label="stable", number=1)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert split.redis.llen("ingot:writes") == 0


def test_orders_of_strangers_late_ones_and_copies_are_not_taken(split: Split) -> None:
    labels = split.worker.parts.repository.labels
    packet = split.packet()
    forged = json.loads(packet)
    forged["order"] = forged["order"].replace("canary", "stable")
    stranger = OrderedWrites.over(split.redis, SigningKey.generate(), seconds=0.1)
    for bad in ("", "{}", "[]", "null", packet[:-2], json.dumps(forged), '{"order": 1, "key": "", "seal": ""}'):
        split.clerk.do(bad)
    with pytest.raises(IngotError):
        stranger.order("set_label", name="m", label="stable", number=1)
    assert labels("m") == {}
    split.clerk.do(packet)
    assert labels("m") == {"canary": 1}
    split.worker.parts.repository.delete_label("m", "canary")
    for clerk in (split.clerk, split.make_clerk()):  # another worker, or the same one after it was started again
        clerk.do(packet)
        assert labels("m") == {}


def test_which_orders_were_taken_is_not_noted_for_ever(split: Split) -> None:
    store = split.worker.parts.repository.store
    split.clerk.do(split.packet())
    (first,) = store.keys("writes")
    old = time.time() - 1000
    os.utime(split.worker.store / first, (old, old))
    clerk = split.make_clerk()
    clerk.do(split.packet())
    clerk.forget()
    (second,) = store.keys("writes")
    assert second != first


def test_nobody_waits_while_very_many_orders_are_forgotten(split: Split) -> None:
    """Of an hour in which somebody moved labels without end."""
    old = time.time() - 1000
    folder = split.worker.store / "writes"
    folder.mkdir(exist_ok=True)
    for number in range(500):
        path = folder / f"{number:032x}.json"
        path.write_text("{}")
        os.utime(path, (old, old))
    store, deleted = split.worker.parts.repository.store, list[str]()
    clerk = split.make_clerk()
    clerk._store = Counting(store, deleted)
    clerk.do(split.packet())
    assert deleted == []
    clerk.forget()
    assert 0 < len(deleted) <= 20
    for _ in range(30):
        clerk.forget()
    assert not any(folder.glob("0000*.json"))


def test_an_order_is_one_for_two_minutes(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    packet, now = split.packet(), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 300)
    split.clerk.do(packet)
    assert split.worker.parts.repository.labels("m") == {}


def test_an_api_with_the_signing_key_does_as_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = CompilerSettings(home=tmp_path, signing_key=str(tmp_path / "signing.pem"))
    keys = api_keys(settings)
    assert keys.signer is not None
    assert "only workers need" in caplog.text
    assert worker_keys(settings).signer is not None


def test_an_api_that_no_worker_would_hear_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "trust").write_text("a file where a folder should be")
    with pytest.raises(IngotError, match="no worker would take") as caught:
        api_keys(CompilerSettings(home=tmp_path))
    assert caught.value.field == str(tmp_path / "trust" / "orders")
    assert replace(CompilerSettings(home=tmp_path), trust="/elsewhere").orders_directory == Path("/elsewhere/orders")
