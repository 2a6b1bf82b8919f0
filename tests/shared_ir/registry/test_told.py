"""What cannot be taken is told in lists, with the reason, and nothing is silently left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.pages import ModelFilter, model_summary, models_page, newest_version, versions_page
from tests.services.artifacts import toy_artifact
from tests.shared_ir.registry.conftest import Registry


def listed(repository: ArtifactRepository, chosen: ModelFilter | None = None) -> dict[str, ErrorCode | int]:
    """What is said of each model: its newest version, or why there is none."""
    page = models_page(repository, chosen=chosen or ModelFilter())
    return {model.name: model.error.code if model.error else model.newest for model in page.items}


def test_models_whose_key_was_revoked_are_there_and_say_so(registry: Registry) -> None:
    registry.publish("a", 2, ("stable",))
    registry.key = SigningKey.generate()
    registry.publish("b")
    repository = registry.again()
    assert listed(repository) == {"a": ErrorCode.ARTIFACT_UNTRUSTED, "b": 1}
    assert listed(repository, ModelFilter(label="stable")) == {"a": ErrorCode.ARTIFACT_UNTRUSTED}
    for ask in (model_summary, newest_version, versions_page):
        with pytest.raises(IngotError, match="not trusted here") as caught:
            ask(repository, "a")
        assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_the_remedy_for_a_revoked_key_is_one(registry: Registry) -> None:
    (key,) = registry.publish("a")
    registry.key = SigningKey.generate()
    repository = registry.again()
    assert repository.find_artifact(key) is None
    repository.put_artifact(toy_artifact("toy", key.encode() * 4, key=key))
    assert repository.find_version("a", [key]) is None
    assert repository.publish("a", [key], "again").number == 2
    assert repository.open("a", 2).manifest.key == key
    assert listed(repository) == {"a": 2}
    assert [version.number for version in versions_page(repository, "a").items] == [2]


def test_a_model_that_was_seen_and_is_gone_is_told(registry: Registry, tmp_path: Path) -> None:
    for name in ("a", "a-b", "b"):
        registry.publish(name)
    memory = Memory(tmp_path / "seen.db")
    assert listed(registry.again(memory)) == {"a": 1, "a-b": 1, "b": 1}
    shutil.rmtree(tmp_path / "store" / "models" / "a")
    for repository in (registry.again(memory), registry.again(Memory(memory.file))):
        assert listed(repository) == {"a": ErrorCode.ARTIFACT_UNTRUSTED, "a-b": 1, "b": 1}
        assert listed(repository, ModelFilter("a-")) == {"a-b": 1}
        with pytest.raises(IngotError, match="gone back"):
            model_summary(repository, "a")
    assert listed(registry.again()) == {"a-b": 1, "b": 1}, "who never saw it cannot miss it"


def test_lists_are_refused_where_what_was_seen_cannot_be_read(registry: Registry, tmp_path: Path) -> None:
    registry.publish("a")
    (tmp_path / "seen.db").write_bytes(b"damaged" * 1000)
    with pytest.raises(IngotError) as caught:
        models_page(registry.again(Memory(tmp_path / "seen.db")))
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_versions_that_pass_no_filter_are_no_reason_to_refuse(registry: Registry) -> None:
    registry.publish("a", 2)
    keys = TrustStore.of([registry.key.public])
    assert versions_page(ArtifactRepository(registry.store, keys), "a", token="").items
