"""A version that a job answers with can be read: every blob of it is what it was when it was signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shared_ir.artifact.oci import MEDIA_MANIFEST
from shared_ir.artifact.published import blob_key, bundle_path, claim_path
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.storage.local import FileStore
from tests.services.artifacts import toy_artifact

KEY = "aa" * 32


@pytest.fixture(name="repository")
def fixture_repository(tmp_path: Path) -> ArtifactRepository:
    key = SigningKey.generate()
    return ArtifactRepository(FileStore(tmp_path / "store"), TrustStore.of([key.public]), key)


def compile_again(repository: ArtifactRepository, seconds: float) -> int:
    """What a job does for the same model: what the cache does not have whole is built, and signed anew, with another report."""
    if repository.find_artifact(KEY) is None:
        artifact = toy_artifact("toy", key=KEY)
        report = dict(artifact.report) | {"seconds": seconds}
        repository.put_artifact(replace(artifact, report=report))
    known = repository.find_version("m", [KEY])
    return known.number if known else repository.publish("m", [KEY], f"job of {seconds} seconds").number


def blobs_of(repository: ArtifactRepository, number: int) -> dict[str, str]:
    """Media type by key of each blob of a version."""
    version = repository.version("m", number)
    index = repository.proven.blob(version.index)
    found = repository.proven.blobs_of(version.index, index)
    return {blob_key(own.digest): own.media_type for own in found}


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "from before claims"])
def test_whatever_blob_is_spoiled_the_same_model_becomes_a_version_that_can_be_read(
    repository: ArtifactRepository, claimed: bool
) -> None:
    assert compile_again(repository, 1.0) == 1
    blobs = blobs_of(repository, 1)
    assert MEDIA_MANIFEST in blobs.values()
    assert len(blobs) > 4
    for turn, key in enumerate(blobs, 2):
        if not claimed:
            for later in (claim_path("m", sha256_hex(canonical_json([KEY]))), bundle_path("m", 1)):
                repository.store.delete(later)
        data = repository.store.get(key)
        repository.store.put(key, bytes([data[0] ^ 1]) + data[1:])
        number = compile_again(repository, float(turn))
        assert repository.open("m", number).to_artifact().manifest.key == KEY, blobs[key]
        assert compile_again(repository, 0.0) == number, "and the next job is answered with the same"
        repository.store.put(key, data)


def test_a_cached_artifact_that_is_whole_does_not_vouch_for_the_manifest_of_a_version(
    repository: ArtifactRepository,
) -> None:
    """Compiled once more since, it has a manifest of its own."""
    compile_again(repository, 1.0)
    manifest = next(key for key, kind in blobs_of(repository, 1).items() if kind == MEDIA_MANIFEST)
    artifact = toy_artifact("toy", key=KEY)
    repository.put_artifact(replace(artifact, report=dict(artifact.report) | {"seconds": 2.0}))
    repository.store.delete(manifest)
    assert repository.find_artifact(KEY) is not None
    number = compile_again(repository, 3.0)
    assert number == 2
    assert repository.open("m", number).manifest.key == KEY
