"""What is collected, and what never is: blobs of versions, of labels, of running jobs, of downloads under way."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.collection import STATE, Collected, CollectionTimes, Pins, collect
from shared_ir.registry.deletion import delete_model, delete_version
from tests.services.artifacts import toy_artifact
from tests.shared_ir.registry.conftest import Registry

HOUR, DAY = 3600.0, 24 * 3600.0
NOTHING = Pins()
RULE = CollectionTimes(grace=HOUR, cache=2 * DAY)


class Clock:
    """Lets files grow older: what was written at any time was written that much earlier."""

    def __init__(self, registry: Registry) -> None:
        self.root: Path = registry.store.root

    def pass_(self, seconds: float) -> None:
        for path in self.root.rglob("*"):
            if path.is_file():
                moment = path.stat().st_mtime - seconds
                os.utime(path, (moment, moment))


@pytest.fixture(name="clock")
def fixture_clock(registry: Registry) -> Clock:
    return Clock(registry)


def run(registry: Registry, pins: Pins = NOTHING, **options: Any) -> Collected:
    return collect(registry.again(), lambda: pins, RULE, **options)


def test_everything_that_is_needed_stays(registry: Registry, clock: Clock) -> None:
    registry.publish("m", 3, ("stable",))
    registry.again().put_artifact(toy_artifact("staged", b"s" * 100, key="ee" * 32), staged=True)
    before = registry.blobs()
    for _ in range(3):
        clock.pass_(DAY / 2)
        assert run(registry).taken == []
    assert registry.blobs() == before


def test_what_a_deleted_version_needed_goes_after_the_time_of_grace(registry: Registry, clock: Clock) -> None:
    """In steps: the deletion, the artifact in the cache, what was noted."""
    kept = registry.publish("m")
    needed = registry.blobs()
    gone = registry.publish("m")
    repository = registry.again()
    delete_version(repository, "m", 2)
    now = time.time()
    assert run(registry, now=now).taken == []  # the cache still knows it
    clock.pass_(3 * DAY)
    first = run(registry, now=now + 3 * DAY)
    assert first.taken == [f"artifacts/{gone[0]}.json"]
    assert first.condemned > 0
    assert run(registry, now=now + 3 * DAY + HOUR / 2).taken == []
    rehearsed = run(registry, now=now + 3 * DAY + 2 * HOUR, dry_run=True)
    assert registry.blobs() > needed
    taken = run(registry, now=now + 3 * DAY + 2 * HOUR)
    assert taken.taken == rehearsed.taken
    assert len(taken.taken) == first.condemned
    assert taken.taken_bytes > 0
    assert registry.blobs() == needed
    assert repository.open("m", 1).manifest.key == kept[0]
    assert repository.find_artifact(gone[0]) is None


def test_what_was_deleted_a_moment_ago_may_still_be_downloaded(registry: Registry, clock: Clock) -> None:
    """Also where its blobs are old, and were noted long ago in a run that saw them in no version."""
    keys = registry.publish("m", 2)
    repository = registry.again()
    files = repository.files(repository.version("m", 2))
    registry.store.delete(f"artifacts/{keys[1]}.json")
    clock.pass_(3 * DAY)
    record = registry.store.get("models/m/versions/00000002.json")
    registry.store.delete("models/m/versions/00000002.json")
    assert run(registry).condemned > 0
    registry.store.put("models/m/versions/00000002.json", record)
    delete_version(registry.again(), "m", 2)
    now = time.time()
    assert run(registry, now=now + HOUR - 60).taken == []
    assert all(data.exists() for _, data in files if isinstance(data, Path))
    assert run(registry, now=now + HOUR + 60).taken == []  # noted again, from now on
    assert run(registry, now=now + 2 * HOUR + 120).taken != []


def test_running_jobs_keep_what_they_need(registry: Registry, clock: Clock) -> None:
    key, other = "ab" * 32, "cd" * 32
    for name in (key, other):
        registry.again().put_artifact(toy_artifact("toy", name.encode(), key=name))
    registry.store.put(f"sources/{key}", b"model")
    registry.store.put(f"sources/{other}", b"model")
    registry.store.put(f"sources/vision/{key}", b"model")
    registry.store.put(f"sources/speech/{key}", b"model")
    clock.pass_(9 * DAY)
    rule = CollectionTimes(HOUR, 2 * DAY, sources=DAY)
    pins = Pins(frozenset({key}), frozenset({f"sources/{key}", f"sources/vision/{key}"}))
    found = collect(registry.again(), lambda: pins, rule)
    assert sorted(found.taken) == [f"artifacts/{other}.json", f"sources/{other}", f"sources/speech/{key}"]
    clock.pass_(DAY)
    collect(registry.again(), lambda: pins, rule, now=time.time() + DAY)
    assert registry.again().find_artifact(key) is not None


def test_uploads_that_nobody_goes_on_with_are_taken(registry: Registry, clock: Clock) -> None:
    old, own = f"uploads/{'ab' * 32}.100", f"uploads/vision/{'cd' * 32}.100"
    for key in (old, own):
        with registry.store.draft(key).writer(0) as writer:
            writer.write(b"half a model")
    assert run(registry).taken == []
    clock.pass_(DAY)
    with registry.store.draft(own).writer(12) as writer:
        writer.write(b"more")
    rule = CollectionTimes(HOUR)
    assert collect(registry.again(), Pins, rule, dry_run=True).taken == [old]
    assert registry.store.size(old) == 12
    found = collect(registry.again(), Pins, rule)
    assert (found.taken, found.taken_bytes) == ([old], 12)
    assert list(registry.store.keys("uploads")) == [own]


def test_a_label_keeps_its_version_even_without_its_record(registry: Registry, clock: Clock) -> None:
    keys = registry.publish("m", 1, ("stable",))
    registry.store.delete("models/m/versions/00000001.json")
    registry.store.delete(f"artifacts/{keys[0]}.json")
    before = registry.blobs()
    now = time.time()
    for days in (3, 6):
        clock.pass_(3 * DAY)
        assert run(registry, now=now + days * DAY).taken == []
    assert registry.blobs() == before


def test_what_is_used_again_is_not_taken(registry: Registry, clock: Clock) -> None:
    keys = registry.publish("m")
    delete_model(registry.again(), "m")
    clock.pass_(3 * DAY)
    assert registry.again().find_artifact(keys[0]) is not None  # a hit: the record is fresh from now on
    assert run(registry).taken == []
    clock.pass_(3 * DAY)
    assert run(registry).taken == [f"artifacts/{keys[0]}.json"]
    registry.again().put_artifact(toy_artifact("toy", keys[0].encode() * 4, key=keys[0]))  # compiled anew: same bytes
    taken = run(registry, now=time.time() + 2 * HOUR).taken
    assert len(taken) == 1  # the index of the version that was deleted
    assert registry.again().open_artifact(keys[0]).manifest.key == keys[0]


def test_a_record_that_cannot_be_read_keeps_all_blobs(registry: Registry, clock: Clock) -> None:
    registry.publish("m", 2)
    registry.publish("gone")
    delete_model(registry.again(), "gone")
    clock.pass_(3 * DAY)
    run(registry, now=time.time() + 3 * DAY)
    registry.store.put("models/m/versions/00000001.json", b"{")
    found = run(registry, now=time.time() + 6 * DAY)
    assert found.taken == []
    assert list(found.unreadable) == ["models/m/versions/00000001.json"]
    delete_version(registry.again(), "m", 1)
    run(registry, now=time.time() + 9 * DAY)
    assert run(registry, now=time.time() + 12 * DAY).taken != []


def test_nothing_is_taken_where_nobody_knows_of_the_jobs(registry: Registry, clock: Clock) -> None:
    registry.publish("gone")
    delete_model(registry.again(), "gone")
    clock.pass_(9 * DAY)

    def away() -> Pins:
        raise IngotError(ErrorCode.UNAVAILABLE, "Redis is away")

    before = list(registry.store.keys("artifacts"))
    with pytest.raises(IngotError, match="Redis is away"):
        collect(registry.again(), away, RULE)
    assert list(registry.store.keys("artifacts")) == before


def test_what_was_noted_by_somebody_else_is_read_with_care(registry: Registry, clock: Clock) -> None:
    registry.publish("m")
    for state in (
        b"{",
        b"[]",
        b'{"condemned":3}',
        b'{"condemned":{"sha256:x":"y"}}',
        b'{"condemned":{"sha256:x":NaN}}',
    ):
        registry.store.put(STATE, state)
        assert run(registry).taken == []


def test_times_that_would_take_what_is_in_use_are_refused() -> None:
    odd = (
        {name: value} for name in ("grace", "cache", "sources") for value in (math.nan, math.inf, -math.inf, -DAY, 1e-7)
    )
    for rule in ({"grace": 60.0}, {"cache": HOUR}, *odd):
        with pytest.raises(IngotError, match="in use could be collected"):
            CollectionTimes(**rule)
    assert CollectionTimes().sources == 0.0
