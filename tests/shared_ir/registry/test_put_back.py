"""What was deleted stays deleted, also where somebody puts a copy of the folder back from before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.deletion import delete_model, delete_version
from shared_ir.registry.pages import versions_page
from tests.shared_ir.registry.conftest import Registry

Delete = Callable[[ArtifactRepository], object]


def refusal(repository: ArtifactRepository, number: int) -> IngotError:
    with pytest.raises(IngotError) as raised:
        repository.open("a", number)
    return raised.value


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path) -> Path:
    return tmp_path / "store" / "models" / "a"


def put_back_after(registry: Registry, folder: Path, delete: Delete, memory: Memory) -> ArtifactRepository:
    repository = registry.again(memory)
    copy = shutil.copytree(folder, folder.parents[2] / "copy")
    delete(repository)
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    return repository


@pytest.mark.parametrize("number", [2, 4])
def test_a_deleted_version_that_is_put_back_is_refused(registry: Registry, folder: Path, number: int) -> None:
    registry.publish("a", 4)
    memory = Memory(folder.parents[2] / "seen.db")
    repository = put_back_after(registry, folder, lambda own: delete_version(own, "a", number), memory)
    for reader in (repository, registry.again(Memory(memory.file))):
        assert refusal(reader, number).code is ErrorCode.ARTIFACT_UNTRUSTED
        assert "deleted" in str(refusal(reader, number))
        assert number not in [version.number for version in versions_page(reader, "a").items]
    delete_version(repository, "a", number)
    assert refusal(repository, number).code is ErrorCode.NOT_FOUND, "once it is deleted again all is well"


@pytest.mark.parametrize("count", [1, 3])
def test_a_deleted_model_that_is_put_back_is_refused(registry: Registry, folder: Path, count: int) -> None:
    registry.publish("a", count)
    repository = put_back_after(registry, folder, lambda own: delete_model(own, "a"), Memory())
    assert {refusal(repository, n).code for n in range(1, count + 1)} == {ErrorCode.ARTIFACT_UNTRUSTED}


def test_who_looked_for_what_was_deleted_remembers_it_as_well(registry: Registry, folder: Path) -> None:
    """A runtime, or the API whose worker deletes."""
    registry.publish("a", 4)
    reader = registry.again(Memory())

    def delete(repository: ArtifactRepository) -> None:
        delete_version(repository, "a", 2)
        assert refusal(reader, 2).code is ErrorCode.NOT_FOUND

    put_back_after(registry, folder, delete, Memory())
    assert refusal(reader, 2).code is ErrorCode.ARTIFACT_UNTRUSTED


def test_what_is_compiled_again_has_a_number_of_its_own(registry: Registry, folder: Path) -> None:
    (key,) = registry.publish("a")
    repository = put_back_after(registry, folder, lambda own: delete_version(own, "a", 1), Memory())
    assert repository.find_version("a", [key]) is None
    assert repository.publish("a", [key], "again").number == 2


def test_a_deletion_that_is_taken_back_for_a_label_is_not_remembered(registry: Registry) -> None:
    registry.publish("a", 2, ("stable",))
    repository = registry.again(Memory())
    with pytest.raises(IngotError, match="labels"):
        delete_version(repository, "a", 2)
    assert repository.open("a", 2).manifest.key
