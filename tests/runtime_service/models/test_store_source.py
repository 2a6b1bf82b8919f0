"""Models from a real store: published versions, signatures, and the moments at which a store goes wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime_service.executors.resources import Resources
from runtime_service.models.repository import StoreSource
from runtime_service.policies import PolicyCatalogue
from runtime_service.server import RuntimeServer, store_source
from runtime_service.settings import RuntimeSettings
from shared_ir.artifact.layout import OpenedArtifact
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustEither, TrustStore, local_keys
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.store import open_store
from tests.runtime_service.models.test_follower import Service
from tests.runtime_service.toy_models import ToyModel, scale_model
from tests.services.artifacts import toy_artifact


class Publisher:
    """The compiler's side of a store, and a loader that notes what it is given instead of mapping it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.key, self.trust = local_keys(home)
        self.repository = ArtifactRepository(open_store(str(home / "store")), self.trust, self.key)
        self.opened: list[OpenedArtifact] = []
        self.threads: list[int] = []

    def publish(self, weights: bytes, *labels: str, key: SigningKey | None = None) -> int:
        signer = key or self.key
        own = TrustEither(self.trust, TrustStore.of([signer.public]))
        repository = ArtifactRepository(self.repository.store, own, signer)
        artifact = toy_artifact("toy", weights, key=weights.hex().ljust(64, "0")[:64], features=(), cpu="x86-64")
        repository.put_artifact(artifact)
        return repository.publish("toy", [artifact.manifest.key], labels=labels).number

    def source(self) -> StoreSource:
        reader = ArtifactRepository(open_store(str(self.home / "store")), self.trust)
        return StoreSource(reader, self._load)

    def _load(self, opened: OpenedArtifact, instances: int, resources: Resources) -> tuple[ToyModel, ...]:
        self.opened.append(opened)
        self.threads.append(resources.threads)
        return tuple(scale_model(float(bytes(opened.weights)[0])) for _ in range(instances))


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def test_published_versions_are_served_and_labels_followed(publisher: Publisher) -> None:
    publisher.publish(b"\x02" * 64, "stable")
    service = Service(publisher.source(), models="toy", instances=2, cores=6)
    service.follower.reconcile()
    assert service.infer("toy") == (2.0, "1")
    assert publisher.threads == [3]
    publisher.publish(b"\x05" * 64, "canary")
    service.follower.reconcile()
    assert service.infer("toy") == (2.0, "1")
    publisher.repository.set_label("toy", "stable", 2)
    service.follower.reconcile()
    assert service.infer("toy") == (5.0, "2")
    service.follower.close()


def test_catalogue(publisher: Publisher) -> None:
    source = publisher.source()
    assert source.changes(None) == frozenset()
    for name in ("toy", "../escape"):
        with pytest.raises(IngotError) as caught:
            source.catalogue(name)
        assert caught.value.code in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARGUMENT)
    publisher.publish(b"\x01", "stable")
    publisher.publish(b"\x02")
    assert source.changes(None) == {"toy"}
    assert source.catalogue("toy") == PolicyCatalogue((1, 2), {"stable": 1})


def test_a_version_by_an_unknown_signer_is_not_loaded_and_the_old_one_stays(publisher: Publisher) -> None:
    publisher.publish(b"\x02" * 64, "stable")
    service = Service(publisher.source(), models="toy@latest")
    service.follower.reconcile()
    publisher.publish(b"\x07" * 64, "stable", key=SigningKey.generate())
    service.follower.reconcile()
    failed = service.dataplane.repository_index()[1]
    assert (failed.version, failed.state.value) == (2, "FAILED")
    assert "not trusted" in failed.reason
    assert len(publisher.opened) == 1
    assert service.infer("toy") == (2.0, "1")
    service.follower.close()


def test_a_label_by_an_unknown_signer_does_not_count_and_says_why(publisher: Publisher) -> None:
    publisher.publish(b"\x02" * 64, "stable")
    service = Service(publisher.source(), models="toy@stable")
    service.follower.reconcile()
    publisher.publish(b"\x07" * 64, "stable", key=SigningKey.generate())
    service.follower.reconcile()
    assert service.infer("toy") == (2.0, "1")
    afresh = Service(publisher.source(), models="toy@stable")
    afresh.follower.reconcile()
    (status,) = afresh.dataplane.repository_index()
    assert "not trusted" in status.reason
    assert "--set-label stable=" in status.reason
    for each in (service, afresh):
        each.follower.close()


def test_a_flipped_byte_is_not_loaded(publisher: Publisher) -> None:
    publisher.publish(b"\x02" * 64, "stable")
    blob = next(p for p in (publisher.home / "store/blobs/sha256").iterdir() if p.read_bytes() == b"\x02" * 64)
    blob.chmod(0o644)
    blob.write_bytes(b"\x02" * 63 + b"\x03")
    service = Service(publisher.source(), models="toy")
    service.follower.reconcile()
    (status,) = service.dataplane.repository_index()
    assert status.state.value == "FAILED"
    assert publisher.opened == []
    assert not service.dataplane.ready()


def test_the_server_takes_store_and_trust_from_its_settings(publisher: Publisher) -> None:
    publisher.publish(b"\x02" * 64, "stable")
    settings = RuntimeSettings(home=publisher.home, models="toy", grpc_address="", http_address="", metrics_address="")
    source = store_source(settings)
    assert source.catalogue("toy") == PolicyCatalogue((1,), {"stable": 1})
    server = RuntimeServer(settings, StoreSource(source.repository, publisher._load))
    server.follower.reconcile()
    assert server.dataplane.ready()
    server.follower.close()
    assert np.array_equal(np.frombuffer(publisher.opened[0].weights, np.uint8), [2] * 64)
