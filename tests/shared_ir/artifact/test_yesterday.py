"""A store as the version before this one left it is read and gone on with; and what this one writes, that one reads."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.artifact.signed import parse_document, sign_document, verify_document
from shared_ir.registry.deletion import delete_version
from shared_ir.registry.pages import model_summary, versions_page
from shared_ir.storage.local import FileStore
from tests.services.artifacts import toy_artifact

A, B, C, STAGED = (pair * 32 for pair in ("aa", "bb", "cc", "dd"))


@pytest.fixture(name="repository")
def fixture_repository(tmp_path: Path) -> ArtifactRepository:
    kept = json.loads(Path(__file__).with_name("yesterday.json").read_text())
    for name, text in kept["files"].items():
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    (tmp_path / "key.pem").write_text(kept["key"])
    (tmp_path / "key.pem").chmod(0o600)
    key = SigningKey.load(tmp_path / "key.pem")
    return ArtifactRepository(FileStore(tmp_path / "store"), TrustStore.of([key.public]), key)


def test_it_is_read(repository: ArtifactRepository) -> None:
    model = model_summary(repository, "m")
    assert (model.newest, {label.label: label.number for label in model.labels}) == (3, {"canary": 3, "stable": 2})
    assert [version.number for version in versions_page(repository, "m").items] == [3, 2, 1]
    assert [repository.open("m", which).manifest.key for which in (1, "stable", None)] == [A, B, C]
    assert repository.find_artifact(B) is not None
    assert repository.find_artifact(STAGED, staged=True) is not None


def test_it_is_gone_on_with(repository: ArtifactRepository) -> None:
    assert repository.publish("m", [B], "job7").number == 2  # which has no claim
    repository.set_label("m", "stable", 3, etag=model_summary(repository, "m").labels[1].etag)
    repository.set_label("m", "gone", 3, etag="0")
    repository.promote(STAGED, {"verification": "good"})
    assert repository.publish("m", [STAGED], "job8", ["canary"]).number == 4
    delete_version(repository, "m", 1)
    assert repository.labels("m") == {"canary": 4, "gone": 3, "stable": 3}
    assert [version.number for version in versions_page(repository, "m").items] == [4, 3, 2]


def test_the_version_before_reads_what_this_one_writes(repository: ArtifactRepository) -> None:
    """What it looks at, of each record; more fields do not trouble it."""
    repository.put_artifact(toy_artifact("toy", b"new", key="ee" * 32))
    repository.publish("m", ["ee" * 32], "job9", ["stable"], by="ann")
    repository.delete_label("m", "canary")
    delete_version(repository, "m", 3)
    store = repository.store
    numbers = [int(key.rpartition("/")[2].removesuffix(".json")) for key in store.keys("models/m/versions")]
    assert numbers == [1, 2, 4]
    for path, field in (("models/m/versions/00000004.json", "index"), (f"artifacts/{'ee' * 32}.json", "descriptor")):
        descriptor = parse_document(store.get(path), path)[field]
        assert {"mediaType", "digest", "size"} <= set(descriptor) <= {"mediaType", "digest", "size", "annotations"}
    for label, number in (("stable", 4), ("canary", 0)):
        data = store.get(f"models/m/labels/{label}.json")
        document = verify_document(data, repository.trust, label, "application/vnd.ingot.label.v1+json")
        assert (document["model"], document["label"], document["version"]) == ("m", label, number)
        assert all(type(document[name]) is int for name in ("generation", "asked"))


def test_fields_of_a_later_version_are_kept_when_a_label_is_moved(repository: ArtifactRepository) -> None:
    path = "models/m/labels/stable.json"
    document = parse_document(repository.store.get(path), path)
    later = {name: value for name, value in document.items() if name != "annotations"} | {"approved": ["ann"]}
    repository.store.put(path, sign_document(later | {"annotations": {}}, repository.signer))
    reader = ArtifactRepository(repository.store, repository.trust, repository.signer)
    reader.set_label("m", "stable", 3)
    moved = parse_document(repository.store.get(path), path)
    assert (moved["version"], moved["approved"]) == (3, ["ann"])
