"""A signing key is replaced: what the old one signed stays valid while it is trusted, in the worker and in the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_service.jobs.records import JobState
from runtime_service.executors.resources import Resources
from runtime_service.models.repository import StoreSource
from runtime_service.server import store_source
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.layout import OpenedArtifact
from shared_ir.errors import ErrorCode, IngotError
from tests.runtime_service.models.test_follower import Service
from tests.runtime_service.toy_models import ToyModel, scale_model
from tests.services.by_hand import Platform
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services

FIRST, SECOND = {"name": "first"}, {"name": "second"}


def load(opened: OpenedArtifact, instances: int, resources: Resources) -> tuple[ToyModel, ...]:
    return tuple(scale_model({"first": 1.0, "second": 2.0}[opened.manifest.name]) for _ in range(instances))


class Rotation:
    """One home; the compiler service starts anew with each key, the runtime goes on."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self._url = home, url
        self.service = self.start_service()
        source = store_source(RuntimeSettings(home=home))
        self.runtime = Service(StoreSource(source.repository, load), models="m@stable+all", poll_interval=1.0)

    def start_service(self) -> Platform:
        self.service = Platform(self.home, self._url)
        return self.service

    def rotate(self) -> str:
        """A new key; the id of the old one, which stays trusted."""
        old = self.service.parts.signer.key_id
        (self.home / "signing.pem").unlink()
        assert self.start_service().parts.signer.key_id != old
        return old

    def revoke(self, key: str) -> None:
        (self.home / "trust" / f"{key}.pub").unlink()

    def index(self) -> list[tuple[int, str]]:
        self.runtime.now += 1000.0
        self.runtime.follower.reconcile()
        return [(s.version, s.state.value) for s in self.runtime.dataplane.repository_index()]


@pytest.fixture(name="rotation")
def fixture_rotation(tmp_path: Path, toy_stages: None) -> Iterator[Rotation]:
    with redis_server() as url:
        rotation = Rotation(tmp_path, url)
        yield rotation
        rotation.runtime.follower.close()


def test_a_key_is_replaced_and_later_revoked(rotation: Rotation) -> None:
    assert rotation.service.compile("m", FIRST, labels=("stable",)).state is JobState.SUCCEEDED
    assert rotation.index() == [(1, "READY")]
    old = rotation.rotate()

    # both are trusted: the cache of the old key counts, its versions are served, the new one signs
    again = rotation.service.compile("m", FIRST)
    assert (again.cache_hit, again.version) == (True, 1)
    assert rotation.service.compile("m", SECOND, labels=("stable",)).version == 2
    assert rotation.index() == [(1, "READY"), (2, "READY")]
    assert rotation.runtime.infer("m") == (2.0, "2")

    # the old one is revoked: what it signed is unloaded, not loaded again, and compiled anew
    rotation.revoke(old)
    assert rotation.index() == [(1, "FAILED"), (2, "READY")]
    assert rotation.runtime.infer("m") == (2.0, "2")
    with pytest.raises(IngotError) as caught:
        rotation.service.parts.repository.open("m", 1)
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    assert [version.number for version in rotation.service.parts.repository.versions("m")] == [2]
    anew = rotation.service.compile("m", FIRST)
    assert (anew.cache_hit, anew.version) == (False, 3)
    assert rotation.index() == [(1, "FAILED"), (2, "READY"), (3, "READY")]


def test_a_key_that_is_trusted_later_counts_without_a_restart(rotation: Rotation) -> None:
    rotation.service.compile("m", FIRST, labels=("stable",))
    public = rotation.home / "trust" / f"{rotation.service.parts.signer.key_id}.pub"
    data = public.read_bytes()
    public.unlink()
    assert [state for _, state in rotation.index()] == ["UNAVAILABLE"]
    public.write_bytes(data)
    assert rotation.index() == [(1, "READY")]
