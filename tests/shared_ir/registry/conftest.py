"""A repository with small artifacts, in a folder or behind an S3 endpoint, whose requests are counted."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.storage.local import FileStore
from shared_ir.storage.protocol import ObjectStore
from tests.services.artifacts import toy_artifact


class CountingStore:
    """Counts what is asked of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def counted(*arguments: Any) -> Any:
            self.requests[name] += 1
            return found(*arguments)

        return counted


@dataclass
class Registry:
    """Who publishes; ``again`` is another process."""

    store: Any
    key: SigningKey = field(default_factory=SigningKey.generate)
    made: int = 0

    def again(self, memory: Memory | None = None) -> ArtifactRepository:
        return ArtifactRepository(self.store, TrustStore.of([self.key.public]), self.key, memory)

    def publish(self, name: str, count: int = 1, labels: tuple[str, ...] = ()) -> list[str]:
        """Versions of new artifacts, with weights of their own; the keys."""
        repository, keys = self.again(), []
        for _ in range(count):
            self.made += 1
            key = f"{self.made:064x}"
            repository.put_artifact(toy_artifact("toy", key.encode() * 4, key=key))
            repository.publish(name, [key], f"job{self.made}", labels)
            keys.append(key)
        return keys

    def blobs(self) -> set[str]:
        return set(self.store.keys("blobs"))


@pytest.fixture(name="registry")
def fixture_registry(tmp_path: Path) -> Registry:
    return Registry(CountingStore(FileStore(tmp_path / "store")))


@pytest.fixture(autouse=True)
def fixture_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of versions need not outlive the machine."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
