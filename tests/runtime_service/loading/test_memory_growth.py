"""Loading and unloading gives everything back (the oldest complaint about model servers)."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from runtime_service.batching.messages import InferRequest, TensorData
from runtime_service.loading.loader import load_models
from runtime_service.models.repository import StoreSource
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import local_keys
from shared_ir.dtype import DType
from shared_ir.storage.store import open_store
from tests.native_models import build_model, toy_feeds
from tests.runtime_service.models.test_follower import Service

pytestmark = pytest.mark.slow


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def mapped_libraries() -> int:
    return sum("ingot" in line for line in Path("/proc/self/maps").read_text().splitlines())


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_hundred_loads_leave_nothing_behind(tmp_path: Path) -> None:
    key, trust = local_keys(tmp_path)
    repository = ArtifactRepository(open_store(str(tmp_path / "store")), trust, key)
    artifact = build_model().artifact()
    repository.put_artifact(artifact)
    repository.publish("toy", [artifact.manifest.key], labels=["stable"])
    service = Service(StoreSource(repository, load_models), explicit=True, cores=2, instances=2)
    feeds = toy_feeds(64)
    assert all(array.dtype == np.float32 for array in feeds.values())
    inputs = tuple(TensorData(name, DType.FLOAT32, array) for name, array in feeds.items())

    def cycle() -> None:
        service.dataplane.load("toy")
        service.dataplane.infer(InferRequest("toy", inputs))
        assert mapped_libraries() > others
        service.dataplane.unload("toy")
        for thread in service.follower._closing:
            thread.join()

    gc.collect()
    others = mapped_libraries()
    for _ in range(20):
        cycle()
    before, descriptors = resident_bytes(), open_descriptors()
    for _ in range(100):
        cycle()
    assert resident_bytes() - before < 4 * 2**20
    assert mapped_libraries() <= others
    assert open_descriptors() <= descriptors
