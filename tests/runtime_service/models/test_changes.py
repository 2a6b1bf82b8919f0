"""What following a store costs, counted in requests; and that nothing that changes is missed, whoever writes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime_service.models.changes import SECONDS_BETWEEN_LISTS, StoreChanges
from runtime_service.models.repository import StoreSource
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact import generation
from shared_ir.artifact.layout import OpenedArtifact
from shared_ir.artifact.published import label_path
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustEither, TrustFolder, TrustStore, add_trusted
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.deletion import delete_model, delete_version
from shared_ir.storage.local import FileStore
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store
from tests.runtime_service.models.test_follower import Service
from tests.runtime_service.toy_models import ToyModel, sample_of, scale_model
from tests.services.artifacts import toy_artifact
from tests.services.s3_server import s3_server
from tests.shared_ir.registry.conftest import CountingStore

_PAGE = 1000
"""Objects that a bucket lists in one request."""


class Bucket(CountingStore):
    """Counts requests as a bucket does, which lists a page at a time; ``refused`` are keys that may not be written."""

    refused: str = ""
    hides_generation = False
    is_away = False

    def list(self, prefix: str, after: str = "") -> Iterator[Any]:
        self.requests["list"] += 1
        self._require()
        for count, info in enumerate(self.store.list(prefix, after), 1):
            self.requests["list"] += count % _PAGE == 0
            yield info

    def keys(self, prefix: str, after: str = "") -> Iterator[str]:
        return (info.key for info in self.list(prefix, after))

    def put(self, key: str, data: Any) -> None:
        if self.refused and key.startswith(self.refused):
            raise IngotError(ErrorCode.UNAVAILABLE, "the store refuses it")
        self.store.put(key, data)

    def identity(self, key: str) -> Any:
        self.requests["head"] += 1
        self._require()
        if self.hides_generation and key == generation.GENERATION:
            raise IngotError(ErrorCode.UNAVAILABLE, "the store refuses it")
        return self.store.identity(key)

    def _require(self) -> None:
        if self.is_away:
            raise IngotError(ErrorCode.UNAVAILABLE, "the store is away")


class Fleet:
    """Who publishes, and one replica that follows, minute by minute."""

    def __init__(self, folder: Path, store: ObjectStore | None = None) -> None:
        self.trust = folder / "trust"
        self.key = SigningKey.generate()
        add_trusted(self.trust, self.key.public)
        self.root = folder / "store"
        self.bucket = Bucket(store or FileStore(self.root))
        self.writer = ArtifactRepository(self.bucket.store, TrustFolder(self.trust), self.key)
        self.artifacts: dict[int, str] = {}

    def publish(self, name: str, factor: int, *labels: str, by: ArtifactRepository | None = None) -> int:
        if factor not in self.artifacts:
            artifact = toy_artifact("toy", bytes([factor]) * 64, key=f"{factor:064x}", features=(), cpu="x86-64")
            self.writer.put_artifact(artifact)
            self.artifacts[factor] = artifact.manifest.key
        return (by or self.writer).publish(name, [self.artifacts[factor]], labels=labels).number

    def replica(self, **settings: Any) -> Service:
        made = StoreSource(ArtifactRepository(self.bucket, TrustFolder(self.trust)), _load)
        service = Service(made, **settings)
        made.__dict__["_changes"] = StoreChanges(self.bucket, made.trusted, lambda: service.now)
        service.follower.reconcile()
        self.bucket.requests.clear()
        return service

    def requests_of_a_minute(self, service: Service) -> int:
        """By passes as often as the settings have it by default."""
        self.bucket.requests.clear()
        for _ in range(int(60 / RuntimeSettings().poll_interval)):
            service.now += RuntimeSettings().poll_interval
            service.follower.reconcile()
        return sum(self.bucket.requests.values())


def _load(opened: OpenedArtifact, instances: int, resources: object) -> tuple[ToyModel, ...]:
    return tuple(scale_model(float(bytes(opened.weights)[0])) for _ in range(instances))


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    return Fleet(tmp_path)


@pytest.mark.parametrize(("count", "models"), [(1, "m0"), (1, "*@stable"), (50, "*@stable")])
def test_a_quiet_minute_costs_one_request_a_look_however_many_models_there_are(
    fleet: Fleet, count: int, models: str
) -> None:
    for number in range(count):
        fleet.publish(f"m{number}", 2, "stable")
    service = fleet.replica(models=models)
    assert len(service.index()) == count
    looks = 60 / RuntimeSettings().poll_interval
    pages = -(-count * len(list(fleet.bucket.store.keys("models/m0"))) // _PAGE)
    assert fleet.requests_of_a_minute(service) <= looks + pages + 1
    assert fleet.bucket.requests["head"] == looks
    fleet.publish("m0", 3, "stable")  # one model of all moves
    service.follower.reconcile()
    assert service.infer("m0") == (3.0, "2")
    service.follower.close()


@pytest.mark.parametrize("names", [None, tuple(f"m{number}" for number in range(1000))])
def test_of_a_thousand_models_a_minute_costs_one_request_for_each_look_and_a_list(
    fleet: Fleet, names: tuple[str, ...] | None
) -> None:
    for number in range(1000):
        for record in ("versions/00000001", "versions/00000002", "labels/stable"):
            fleet.bucket.store.put(f"models/m{number}/{record}.json", b"{}")
    generation.tell_readers(fleet.bucket.store)
    now = 0.0
    watch = StoreChanges(fleet.bucket, frozenset, lambda: now)
    assert len(watch.since_last(names)) == 1000
    fleet.bucket.requests.clear()
    for _ in range(30):
        now += 2.0
        assert watch.since_last(names) == frozenset()
    assert dict(fleet.bucket.requests) == {"head": 30, "list": 4}
    generation.tell_readers(fleet.bucket.store)
    fleet.bucket.store.put("models/m77/labels/stable.json", b"{ }")
    assert watch.since_last(names) == {"m77"}


@pytest.mark.services
def test_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("changes") as url:
        settings = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        fleet = Fleet(tmp_path, open_store("s3://changes/store", tmp_path / "cache", cache_bytes=1000))
        for number in range(5):
            fleet.publish(f"m{number}", 2 + number, "stable")
        service = fleet.replica(models="*@stable")
        assert [service.infer(f"m{number}") for number in range(5)] == [(2.0 + number, "1") for number in range(5)]
        assert fleet.requests_of_a_minute(service) == 60 / RuntimeSettings().poll_interval + 1
        fleet.publish("m3", 9, "stable")
        service.follower.reconcile()
        assert service.infer("m3") == (9.0, "2")
        fleet.writer.set_label("m3", "stable", 1)
        service.follower.reconcile()
        assert service.infer("m3") == (5.0, "1")
        service.follower.close()
        copies = [path for path in (tmp_path / "cache").glob("*/*") if path.is_file()]
        assert 0 < sum(path.stat().st_size for path in copies) <= 1000


def test_models_without_the_label_and_such_that_do_not_load_cost_nothing_either(fleet: Fleet) -> None:
    fleet.publish("good", 2, "stable")
    fleet.publish("unlabelled", 2)
    fleet.publish("foreign", 3)
    fleet.writer.set_label("foreign", "stable", 1)
    blob = next(p for p in (fleet.root / "blobs/sha256").iterdir() if p.read_bytes() == bytes([3]) * 64)
    blob.unlink()
    service = fleet.replica(models="*@stable,absent")
    assert service.index() == [("absent", 0, "UNAVAILABLE"), ("foreign", 1, "FAILED"), ("good", 1, "READY")]
    service.now += 1000
    service.follower.reconcile()  # what fails is tried again, ever more seldom
    for _ in range(8):
        service.now += 300
        service.follower.reconcile()
    assert fleet.requests_of_a_minute(service) < 50


def changes(fleet: Fleet) -> dict[str, Callable[[], object]]:
    writer = fleet.writer
    return {
        "publish": lambda: fleet.publish("m", 5),
        "move": lambda: writer.set_label("m", "stable", 2),
        "take away": lambda: writer.delete_label("m", "canary"),
        "version": lambda: delete_version(writer, "m", 3),
        "model": lambda: delete_model(writer, "n", force=True),
    }


@pytest.mark.parametrize("what", ["publish", "move", "take away", "version", "model"])
def test_whatever_changes_is_told_at_once_and_of_no_other_model(fleet: Fleet, what: str) -> None:
    for factor, labels in ((2, ("stable",)), (3, ("canary",)), (4, ())):
        fleet.publish("m", factor, *labels)
    fleet.publish("n", 2, "stable")
    now = 0.0
    watch = StoreChanges(fleet.bucket, frozenset, lambda: now)
    assert watch.since_last(None) == {"m", "n"}
    assert watch.since_last(None) == frozenset()
    changes(fleet)[what]()
    fleet.bucket.requests.clear()
    assert watch.since_last(None) == {"n" if what == "model" else "m"}
    assert sum(fleet.bucket.requests.values()) == 2
    assert watch.since_last(None) == frozenset()


def test_what_nobody_told_is_found_within_a_minute(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by an older version, or by who ended, or was not allowed, to tell."""
    fleet.publish("m", 2, "stable")
    service = fleet.replica(models="m")
    fleet.bucket.refused = generation.GENERATION
    fleet.publish("m", 3, "stable", by=ArtifactRepository(fleet.bucket, TrustFolder(fleet.trust), fleet.key))
    service.follower.reconcile()
    assert service.infer() == (2.0, "1")
    service.now += SECONDS_BETWEEN_LISTS
    service.follower.reconcile()
    assert service.infer() == (3.0, "2")
    service.follower.close()


def test_a_store_that_only_older_versions_have_written_is_followed_as_before(fleet: Fleet) -> None:
    fleet.publish("m", 2, "stable")
    fleet.bucket.store.delete(generation.GENERATION)
    service = fleet.replica(models="m")
    fleet.bucket.refused = generation.GENERATION
    fleet.publish("m", 3, "stable", by=ArtifactRepository(fleet.bucket, TrustFolder(fleet.trust), fleet.key))
    service.follower.reconcile()
    assert service.infer() == (3.0, "2")
    assert fleet.requests_of_a_minute(service) <= 2 * 60 / RuntimeSettings().poll_interval
    service.follower.close()


def test_who_may_not_ask_for_the_object_lists_at_each_look(fleet: Fleet) -> None:
    fleet.bucket.hides_generation = True
    fleet.publish("m", 2, "stable")
    service = fleet.replica(models="m")
    fleet.publish("m", 3, "stable")
    service.follower.reconcile()
    assert service.infer() == (3.0, "2")
    assert fleet.requests_of_a_minute(service) == 2 * 60 / RuntimeSettings().poll_interval
    service.follower.close()


def test_a_change_while_the_store_is_read_is_seen_by_the_next_look(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.publish("m", 2, "stable")
    watch = StoreChanges(fleet.bucket, frozenset, lambda: 0.0)
    listed = fleet.bucket.list

    def meanwhile(prefix: str, after: str = "") -> Iterator[Any]:
        yield from list(listed(prefix, after))
        monkeypatch.setattr(fleet.bucket, "list", listed)
        fleet.publish("m", 3, "stable")

    monkeypatch.setattr(fleet.bucket, "list", meanwhile)
    assert watch.since_last(None) == {"m"}
    assert watch.since_last(None) == {"m"}
    assert watch.since_last(None) == frozenset()


def test_of_two_who_write_at_once_none_is_lost(fleet: Fleet) -> None:
    """Each puts a text of its own, so every state of the object is a new one."""
    seen = set()
    for _ in range(50):
        generation.tell_readers(fleet.bucket.store)
        seen.add(generation.generation(fleet.bucket.store))
    assert len(seen) == 50


def test_a_look_that_fails_is_made_up_for(fleet: Fleet) -> None:
    fleet.publish("m", 2, "stable")
    service = fleet.replica(models="m")
    fleet.publish("m", 3, "stable")
    fleet.bucket.is_away = True
    service.follower.reconcile()
    assert service.infer() == (2.0, "1")
    assert sample_of(service.metrics, "ingot_repository_poll_failure_total") == 1
    fleet.bucket.is_away = False
    service.follower.reconcile()
    assert service.infer() == (3.0, "2")
    service.follower.close()


def test_what_could_not_be_read_when_it_changed_is_read_later(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.publish("m", 2, "stable")
    fleet.publish("n", 2)
    service = fleet.replica(models="*@stable")
    fleet.publish("m", 3, "stable")
    fleet.writer.set_label("n", "stable", 1)

    def away(name: str) -> None:
        raise IngotError(ErrorCode.UNAVAILABLE, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(StoreSource, "catalogue", lambda source, name: away(name))
        service.follower.reconcile()
    assert service.infer() == (2.0, "1")
    assert service.code(lambda: service.infer("n")) is ErrorCode.NOT_FOUND
    service.follower.reconcile()
    assert service.infer() == (3.0, "2")
    assert service.infer("n") == (2.0, "1")
    service.follower.close()


def test_a_key_that_is_trusted_from_now_on_is_looked_at_anew(fleet: Fleet) -> None:
    fleet.publish("m", 2, "stable")
    service = fleet.replica(models="*@stable")
    other = SigningKey.generate()
    own = TrustEither(TrustFolder(fleet.trust), TrustStore.of([other.public]))
    fleet.publish("m", 3, "stable", by=ArtifactRepository(fleet.bucket.store, own, other))
    service.follower.reconcile()
    assert service.infer() == (2.0, "1")
    add_trusted(fleet.trust, other.public)
    service.follower.reconcile()
    assert service.infer() == (3.0, "2")
    service.follower.close()


def test_other_files_of_a_store_are_no_change(fleet: Fleet) -> None:
    fleet.publish("m", 2, "stable")
    watch = StoreChanges(fleet.bucket, frozenset, lambda: 0.0)
    watch.since_last(None)
    fleet.bucket.store.put("models/m/contents/x.json", b"{}")
    fleet.bucket.store.put("models/stray.json", b"{}")
    generation.tell_readers(fleet.bucket.store)
    assert watch.since_last(None) == frozenset()
    fleet.bucket.store.put(label_path("m", "beta"), b"no label")
    generation.tell_readers(fleet.bucket.store)
    assert watch.since_last(["m"]) == {"m"}
    assert watch.since_last(["m", "k"]) == {"k"}
    assert watch.since_last(["m", "k"]) == frozenset()
