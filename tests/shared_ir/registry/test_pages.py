"""Lists a page at a time: everything once and in order, whatever is deleted meanwhile, with few requests to the store."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_ir.artifact.bundles import SIZE
from shared_ir.artifact.memory import Memory
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.deletion import delete_model, delete_version
from shared_ir.registry.pages import (
    MOST_BYTES,
    ChangeFilter,
    ModelFilter,
    Page,
    PageRoom,
    VersionFilter,
    changes_page,
    model_summary,
    models_page,
    page_size,
    versions_page,
)
from tests.services.artifacts import toy_artifact
from tests.shared_ir.registry.conftest import Registry


def every(ask: Callable[[str], Page[Any]]) -> list[Any]:
    """The items of all pages."""
    found: list[Any] = []
    token = ""
    while True:
        page = ask(token)
        found += page.items
        token = page.token
        if not token:
            return found


def numbers(registry: Registry, name: str, size: int, chosen: VersionFilter | None = None) -> list[int]:
    repository = registry.again()
    pages = every(lambda token: versions_page(repository, name, size, token, chosen or VersionFilter()))
    return [version.number for version in pages]


def test_models_come_in_order_of_name(registry: Registry) -> None:
    for name in ("c", "a", "b-1", "b", "d"):
        registry.publish(name, 1, ("stable",) if name in "ad" else ())
    delete_model(registry.again(), "b")
    repository = registry.again()
    for size in (1, 2, 3, 4, 5):
        found = every(lambda token, size=size: models_page(repository, size, token))  # type: ignore[misc]
        assert [model.name for model in found] == ["a", "b-1", "c", "d"]
    assert [label.number for label in found[0].labels] == [1]
    chosen = [ModelFilter(prefix="b"), ModelFilter(label="stable"), ModelFilter("x")]
    assert [[m.name for m in models_page(repository, chosen=c).items] for c in chosen] == [["b-1"], ["a", "d"], []]


def test_versions_come_from_the_newest_on(registry: Registry) -> None:
    registry.publish("m", 2 * SIZE + 3)
    everything = list(range(2 * SIZE + 3, 0, -1))
    for size in (1000, SIZE, 7):
        assert numbers(registry, "m", size) == everything
    for number in (*range(40, 103), 1):
        delete_version(registry.again(), "m", number)
    left = [103, *range(39, 1, -1)]
    for size in (1000, 5):
        assert numbers(registry, "m", size) == left
    registry.store.put("models/m/bundles/00000001.json", b"{")  # derived: without it versions are read one by one
    registry.store.delete("models/m/bundles/00000101.json")
    assert numbers(registry, "m", 10) == left
    with pytest.raises(IngotError) as caught:
        versions_page(registry.again(), "n")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_versions_that_an_older_service_published_are_listed(registry: Registry) -> None:
    """It writes no bundles and no claims."""
    keys = registry.publish("m", 5)
    for kind in ("bundles", "contents"):
        for key in list(registry.store.keys(f"models/m/{kind}")):
            registry.store.delete(key)
    assert numbers(registry, "m", 2) == [5, 4, 3, 2, 1]
    found = registry.again().find_version("m", [keys[2]])
    assert found is not None
    assert found.number == 3
    assert registry.again().publish("m", [keys[3]], "job9").number == 4
    registry.publish("m")
    assert numbers(registry, "m", 2) == [6, 5, 4, 3, 2, 1]


def test_a_copy_of_another_version_is_not_taken(registry: Registry) -> None:
    registry.publish("m", 2)
    path = "models/m/bundles/00000001.json"
    registry.store.put(path, registry.store.get(path).replace(b'"2":"', b'"1":"', 1).replace(b'"1":"', b'"2":"', 1))
    found = versions_page(registry.again(), "m").items
    assert [(v.number, v.index.digest) for v in found] == [
        (n, registry.again().version("m", n).index.digest) for n in (2, 1)
    ]


def test_versions_of_a_target_and_of_a_time(registry: Registry) -> None:
    registry.publish("m", 3)
    repository = registry.again()
    repository.put_artifact(toy_artifact("arm", key="ff" * 32, triple="aarch64-linux-gnu", cpu="cortex-a72"))
    repository.publish("m", ["ff" * 32], "job")
    created = {n: repository.version("m", n).created for n in (1, 2, 3, 4)}
    for chosen, expected in (
        (VersionFilter(target="cortex-a72"), [4]),
        (VersionFilter(target="x86_64-linux-gnu"), [3, 2, 1]),
        (VersionFilter(target="none"), []),
        (VersionFilter(since=created[2]), [4, 3, 2]),
        (VersionFilter(until=created[2]), [2, 1]),
        (VersionFilter(since=created[2], until=created[3]), [3, 2]),
    ):
        assert numbers(registry, "m", 2, chosen) == expected


def test_events_of_a_model_of_an_action_of_somebody_and_of_a_time(registry: Registry) -> None:
    registry.publish("m", 2, ("stable",))
    registry.publish("n")
    delete_version(registry.again(), "m", 1, "ann")
    repository = registry.again()

    def found(size: int = 2, **chosen: Any) -> list[str]:
        own = ChangeFilter(**chosen)
        changes = every(lambda token: changes_page(repository, size, token, own))
        return [f"{change.action} {change.model}{change.version}" for change in changes]

    everything = ["delete-version m1", "publish n1", "set-label m2", "publish m2", "set-label m1", "publish m1"]
    assert found() == found(100) == everything
    assert found(model="n") == everything[1:2]
    assert found(action="publish") == [everything[1], everything[3], everything[5]]
    assert found(by="ann") == everything[:1]
    times = [change.time for change in changes_page(repository).items]
    assert found(until=times[2]) == everything[2:]
    assert found(since=times[2]) == everything[:3]
    assert found(since=times[3], until=times[1]) == everything[1:4]


@pytest.mark.parametrize("token", ["x", "eA==", "WzEsIngiXQ==", "bm90aGluZw==", "é"])
def test_tokens_of_no_list_are_refused(registry: Registry, token: str) -> None:
    registry.publish("m", 3)
    repository = registry.again()
    asked: list[Callable[[str], object]] = [
        lambda t: models_page(repository, 1, t),
        lambda t: versions_page(repository, "m", 1, t),
        lambda t: changes_page(repository, 1, t),
    ]
    real = [
        models_page(repository, 1).token,
        versions_page(repository, "m", 1).token,
        changes_page(repository, 1).token,
        versions_page(repository, "m", 1, chosen=VersionFilter(target="x")).token or token,
    ]
    for number, ask in enumerate(asked):
        for other in {token, *real} - {real[number], ""}:
            with pytest.raises(IngotError, match="none of this list"):
                ask(other)


def test_sizes_of_pages() -> None:
    assert [page_size(asked) for asked in (0, 1, 5000)] == [50, 1, 1000]
    with pytest.raises(IngotError, match="no such size"):
        page_size(-1)


def test_pages_ask_the_store_for_little(registry: Registry, tmp_path: Path) -> None:
    """However many versions there are: names of the newest, their copies, and the labels."""
    registry.publish("m", 3 * SIZE + 2, ())
    registry.again().set_label("m", "stable", 7)
    for memory in (Memory(), Memory(tmp_path / "seen.db")):
        repository = registry.again(memory)
        registry.store.requests.clear()
        assert len(versions_page(repository, "m", SIZE).items) == SIZE
        assert sum(registry.store.requests.values()) <= 4
        registry.store.requests.clear()
        model = model_summary(repository, "m")
        assert (model.newest, [label.number for label in model.labels]) == (3 * SIZE + 2, [7])
        assert sum(registry.store.requests.values()) <= 5


def test_publishing_asks_the_store_for_as_much_however_many_versions_there_are(registry: Registry) -> None:
    counts = []
    for _ in range(3):
        registry.publish("m", SIZE - 3)
        key = f"{registry.made:x}".rjust(64, "f")
        registry.again().put_artifact(toy_artifact("toy", key.encode(), key=key))
        repository = registry.again()
        registry.store.requests.clear()
        repository.publish("m", [key], "job")
        counts.append(sum(registry.store.requests.values()))
        assert registry.store.requests["list"] == 0
    assert max(counts) <= 33
    assert counts[2] <= counts[1]


def test_a_page_ends_where_its_bytes_do_and_the_next_one_goes_on(registry: Registry) -> None:
    """Each thing comes once, in its order; what alone is too big comes alone."""
    for number in range(6):
        registry.publish(f"m{number}")
    registry.publish("m0", 6)
    repository = registry.again()
    weights = itertools.cycle([MOST_BYTES // 2, MOST_BYTES // 3, MOST_BYTES * 2, 1])

    def weigh(_: Any) -> int:
        return next(weights)

    lists: list[Callable[..., Page[Any]]] = [
        lambda **asked: models_page(repository, 50, **asked),
        lambda **asked: versions_page(repository, "m0", 50, **asked),
        lambda **asked: changes_page(repository, 50, **asked),
    ]
    for ask in lists:
        whole = ask().items
        sizes: list[int] = []

        def counted(token: str, ask: Callable[..., Page[Any]] = ask, sizes: list[int] = sizes) -> Page[Any]:
            page = ask(token=token, weigh=weigh)
            sizes.append(len(page.items))
            return page

        assert every(counted) == list(whole)
        assert max(sizes) < len(whole)
        assert min(sizes) >= 1


@given(st.lists(st.integers(0, 2 * MOST_BYTES)), st.integers(1, 5))
def test_room_is_for_as_much_as_it_says(weights: list[int], size: int) -> None:
    room = PageRoom[int](size, lambda weight: weight)
    taken = list(itertools.takewhile(room.take, weights))
    assert room.items == tuple(taken)
    assert len(taken) <= size
    assert sum(taken) <= MOST_BYTES or len(taken) == 1
    if len(taken) < len(weights):
        assert len(taken) == size or sum(weights[: len(taken) + 1]) > MOST_BYTES
