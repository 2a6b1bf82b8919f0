"""Versions and models that are taken away: never under a label, never twice under one number, and not back again."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from shared_ir.artifact.audit import Change
from shared_ir.artifact.memory import Memory
from shared_ir.artifact.repository import ArtifactRepository, Version
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.deletion import delete_model, delete_version
from shared_ir.registry.pages import newest_version
from shared_ir.registry.retention import Retention, expired, retain
from tests.services.artifacts import toy_artifact
from tests.shared_ir.registry.conftest import Registry


def code_of(caught: pytest.ExceptionInfo[IngotError]) -> ErrorCode:
    return caught.value.code


def test_a_version_is_deleted_and_its_number_is_not_used_again(registry: Registry) -> None:
    keys = registry.publish("m", 3)
    repository = registry.again()
    delete_version(repository, "m", 3, "ann")
    assert repository.version_numbers("m") == (1, 2)
    assert newest_version(repository, "m").number == 2
    with pytest.raises(IngotError, match="no version 3") as caught:
        repository.open("m", 3)
    assert code_of(caught) is ErrorCode.NOT_FOUND
    assert repository.publish("m", [keys[2]], "job9").number == 4  # the same artifacts
    assert registry.again().publish("m", [keys[1]], "job9").number == 2


def test_who_saw_a_version_believes_that_it_was_deleted_only_where_that_is_signed(registry: Registry) -> None:
    registry.publish("m", 2)
    memory = Memory()
    assert newest_version(registry.again(memory), "m").number == 2
    delete_version(registry.again(), "m", 2)
    assert newest_version(registry.again(memory), "m").number == 1
    registry.store.delete("models/m/deleted/00000002.json")
    with pytest.raises(IngotError, match="gone back"):
        newest_version(registry.again(memory), "m")
    registry.store.put("models/m/deleted/00000002.json", b'{"first":1,"last":2}')
    with pytest.raises(IngotError, match="gone back"):
        registry.again(memory).version_numbers("m")


def test_who_moves_a_label_reads_no_deletions_of_others(registry: Registry) -> None:
    registry.publish("m", 30, ("stable",))
    for number in range(2, 28):
        delete_version(registry.again(), "m", number)
    repository = registry.again()
    registry.store.requests.clear()
    repository.set_label("m", "stable", 1)
    assert sum(registry.store.requests.values()) <= 10
    repository.put_artifact(toy_artifact("toy", key="ff" * 32))
    registry.store.requests.clear()
    assert repository.publish("m", ["ff" * 32], "job").number == 31
    assert sum(registry.store.requests.values()) <= 32


def test_a_deletion_of_one_model_is_none_of_another(registry: Registry) -> None:
    registry.publish("m", 2)
    registry.publish("n", 2)
    memory = Memory()
    assert newest_version(registry.again(memory), "n").number == 2
    delete_version(registry.again(), "m", 2)
    registry.store.put("models/n/deleted/00000002.json", registry.store.get("models/m/deleted/00000002.json"))
    registry.store.delete("models/n/versions/00000002.json")
    with pytest.raises(IngotError, match="gone back"):
        newest_version(registry.again(memory), "n")


def test_a_label_holds_its_version(registry: Registry) -> None:
    registry.publish("m", 1, ("stable",))
    registry.publish("m")
    repository = registry.again()
    with pytest.raises(IngotError, match="labels that point") as caught:
        delete_version(repository, "m", 1)
    assert code_of(caught) is ErrorCode.CONFLICT
    assert caught.value.received == "stable=1"
    repository.set_label("m", "stable", 2)
    delete_version(repository, "m", 1)
    with pytest.raises(IngotError) as caught:
        repository.set_label("m", "stable", 1)
    assert code_of(caught) is ErrorCode.NOT_FOUND


def test_a_label_that_is_set_while_its_version_is_deleted_holds_it_or_is_not_set(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes second sees the other: a deletion is written before labels are looked at, a label before deletions are."""
    registry.publish("m", 2, ("stable",))  # stable=2
    deleter, setter = registry.again(), registry.again()
    labels = ArtifactRepository.labels
    calls: list[int] = []

    def late(self: ArtifactRepository, name: str) -> object:
        found = labels(self, name)
        calls.append(1)
        if self is deleter and len(calls) == 1:  # after the first look, before the deletion is written
            setter.set_label("m", "stable", 1)
        return found

    monkeypatch.setattr(ArtifactRepository, "labels", late)
    with pytest.raises(IngotError, match="labels that point"):
        delete_version(deleter, "m", 1)
    monkeypatch.undo()
    assert setter.labels("m") == {"stable": 1}
    assert setter.version_numbers("m") == (1, 2)
    assert setter.proven.deletion("m", 1) is None

    setter.set_label("m", "stable", 2)
    version = setter.version

    def slow(name: str, number: int) -> Version:
        """The version was there when it was looked for, and is deleted before the label is written."""
        found = version(name, number)
        if number == 1:
            delete_version(deleter, "m", 1)
        return found

    monkeypatch.setattr(setter, "version", slow)
    with pytest.raises(IngotError, match="is being deleted"):
        setter.set_label("m", "stable", 1)
    assert deleter.labels("m") == {"stable": 2}


def test_a_model_is_deleted_and_can_be_made_again(registry: Registry) -> None:
    registry.publish("m", 3, ("stable",))
    registry.publish("other")
    memory = Memory()
    assert registry.again(memory).resolve("m", "stable").number == 3
    repository = registry.again()
    with pytest.raises(IngotError, match="labels that point"):
        delete_model(repository, "m")
    assert delete_model(repository, "m", "ann", force=True) == 3
    reader = registry.again(memory)
    assert reader.models() == ("other",)
    assert reader.version_numbers("m") == ()
    for call in (
        lambda: newest_version(reader, "m"),
        lambda: reader.resolve("m", "stable"),
        lambda: delete_model(reader, "m"),
    ):
        with pytest.raises(IngotError) as caught:
            call()
        assert code_of(caught) is ErrorCode.NOT_FOUND
    registry.publish("m", 1, ("stable",))
    assert registry.again(memory).resolve("m", "stable").number == 4


def test_a_version_that_proves_nothing_can_be_deleted(registry: Registry) -> None:
    registry.publish("m", 2)
    registry.store.put("models/m/versions/00000001.json", b"{}")
    delete_version(registry.again(), "m", 1)
    assert registry.again().version_numbers("m") == (2,)


def test_what_is_kept_and_what_goes(registry: Registry) -> None:
    registry.publish("m", 6)
    repository = registry.again()
    repository.set_label("m", "stable", 2)
    now = repository.version("m", 6).created
    assert expired(repository, "m", Retention(2), now + 1) == (1, 3, 4)
    assert expired(repository, "m", Retention(2, days=1), now + 1) == ()
    assert expired(repository, "m", Retention(2, days=1), now + 2 * 24 * 3600) == (1, 3, 4)
    assert retain(repository, Retention(2), dry_run=True)[0].deleted == (1, 3, 4)
    assert repository.version_numbers("m") == (1, 2, 3, 4, 5, 6)
    assert retain(repository, Retention(2))[0].deleted == (1, 3, 4)
    assert registry.again().version_numbers("m") == (2, 5, 6)
    for last, days in ((0, 0.0), (1, -1.0), (1, math.nan), (1, math.inf)):
        with pytest.raises(IngotError, match="keep nothing"):
            Retention(last, days)


def test_who_did_what_is_told(registry: Registry) -> None:
    registry.publish("m", 2, ("stable",))
    repository = registry.again()
    repository.delete_label("m", "stable")
    delete_version(repository, "m", 1, "ann")
    found = [change for change in repository.audit.newest() if isinstance(change, Change)]
    assert [(c.action, c.by, c.model, c.version, c.label) for c in found] == [
        ("delete-version", "ann", "m", 1, ""),
        ("delete-label", "", "m", 0, "stable"),
        ("set-label", "job job2", "m", 2, "stable"),
        ("publish", "job job2", "m", 2, ""),
        ("set-label", "job job1", "m", 1, "stable"),
        ("publish", "job job1", "m", 1, ""),
    ]
    assert [(c.before, c.after) for c in found[1:3]] == [("2", ""), ("1", "2")]
    assert found[0].before == found[5].after
    assert all(earlier.time <= later.time for later, earlier in pairwise(found))


def test_an_event_that_somebody_changed_is_none(registry: Registry) -> None:
    registry.publish("m", 2)
    keys = list(registry.store.keys("audit"))
    data = registry.store.get(keys[0])
    registry.store.put(keys[0], data.replace(b"job2", b"jobX"))
    assert [c.version for c in registry.again().audit.newest() if isinstance(c, Change)] == [1]
    registry.store.put(keys[1], data)  # another one's place
    assert [c for c in registry.again().audit.newest() if isinstance(c, Change)] == []


def test_what_a_rule_lets_go_is_found_without_asking_for_each_version(registry: Registry) -> None:
    registry.publish("m", 120, ("stable",))
    repository = registry.again()
    registry.store.requests.clear()
    assert expired(repository, "m", Retention(1)) == tuple(range(1, 120))
    assert sum(registry.store.requests.values()) <= 12
