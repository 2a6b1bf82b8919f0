"""Records that prove nothing: they harm themselves alone, whatever number they are named by."""

from __future__ import annotations

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.deletion import delete_model
from shared_ir.registry.retention import Retention, retain
from tests.shared_ir.registry.conftest import Registry

FAR = ("99999999", "999999999999999999")
FOLDERS = ("versions", "deleted", "deleted-through")


@pytest.mark.parametrize("number", FAR)
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_of_a_record_is_the_end_of_a_model(registry: Registry, folder: str, number: str) -> None:
    registry.publish("m", 2, ("stable",))
    memory, path = Memory(), f"models/m/{folder}/{number}.json"
    registry.store.put(path, b"{}")
    registry.publish("m", 1, ("stable",))
    registry.store.delete(path)
    reader = registry.again(memory)
    assert reader.version_numbers("m") == (1, 2, 3)
    assert reader.resolve("m").number == reader.resolve("m", "stable").number == 3
    registry.publish("m")
    assert registry.again(memory).resolve("m").number == 4


def test_numbers_of_who_is_trusted_no_longer_are_not_used_again(registry: Registry) -> None:
    registry.publish("m", 2)
    for path in ("versions/00000002", "versions/00000007", "deleted/00000009"):
        registry.store.put(f"models/m/{path}.json", b"{}")
    registry.publish("m")
    assert registry.again().version("m", 10).number == 10


@pytest.mark.parametrize("number", FAR)
def test_who_deletes_a_model_deletes_no_numbers_that_it_never_had(registry: Registry, number: str) -> None:
    registry.publish("m", 3)
    registry.store.put(f"models/m/versions/{number}.json", b"{}")
    assert delete_model(registry.again(), "m") == 4
    memory = Memory()
    registry.again(memory).proven.learn_ranges("m")
    registry.publish("m")
    assert registry.again(memory).resolve("m").number == 4


def test_the_newest_version_is_missed_whatever_lies_above_it(registry: Registry) -> None:
    registry.publish("m", 2)
    memory = Memory()
    assert registry.again(memory).resolve("m").number == 2
    registry.store.delete("models/m/versions/00000002.json")
    registry.store.put("models/m/versions/00000003.json", b"{}")
    with pytest.raises(IngotError, match="gone back") as caught:
        registry.again(memory).version_numbers("m")
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED


def test_what_proves_nothing_is_none_of_the_newest_that_are_kept(registry: Registry) -> None:
    registry.publish("m", 3)
    for number in (4, 5, 6):
        registry.store.put(f"models/m/versions/{number:08d}.json", b"{}")
    assert retain(registry.again(), Retention(2))[0].deleted == (1,)
