"""Someone else writes to the store: whatever he changes, a reader gets what was signed under that name, or a typed error."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shared_ir.artifact.memory import Memory
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.registry.pages import changes_page, versions_page
from shared_ir.storage.local import FileStore
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store
from tests.services.artifacts import toy_artifact
from tests.services.s3_server import s3_server

SEEDS = int(os.environ.get("STORE_SEEDS", "1"))
"""More of them change more bytes and swap more pairs."""
A, B, C = "aa" * 32, "bb" * 32, "cc" * 32
LABELS = "models/{}/labels/{}.json"
VERSION = "models/{}/versions/{:08d}.json"


@dataclass
class Scene:
    """A store with two models, and what a reader answers about it. ``m`` has versions 1 (of A) and 2 (of B), ``n`` has 1 (of C)."""

    root: Path
    key: SigningKey

    @classmethod
    def make(cls, root: Path) -> Scene:
        scene = cls(root, SigningKey.generate())
        writer = scene.writer()
        for name, key in (("one", A), ("two", B), ("three", C)):
            writer.put_artifact(toy_artifact(name, key.encode()[:2] * 64, key=key))
        writer.put_artifact(toy_artifact("unverified", b"u" * 128, key="dd" * 32), staged=True)
        writer.publish("m", [A], "job1", ["stable", "old"])
        writer.publish("m", [B], "job2", ["canary"])
        writer.publish("n", [C], "job3", ["stable"])
        writer.set_label("m", "stable", 2)
        return scene

    @property
    def store(self) -> ObjectStore:
        return FileStore(self.root)

    def writer(self) -> ArtifactRepository:
        return ArtifactRepository(self.store, TrustStore.of([self.key.public]), self.key)

    def reader(self, memory: Memory | None = None) -> ArtifactRepository:
        return ArtifactRepository(self.store, TrustStore.of([self.key.public]), memory=memory)

    def objects(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())

    def answers(self, memory: Memory | None = None) -> dict[str, Any]:
        """What a reader, or a worker that is about to publish, gets: weights by what was asked for, or the code of an error."""
        reader = self.reader(memory)
        asked: dict[str, Callable[[], Any]] = {
            f"open {name} {which}": lambda name=name, which=which: _content(reader.open(name, which))  # type: ignore[misc]
            for name, which in (
                ("m", 1),
                ("m", 2),
                ("m", "stable"),
                ("m", "old"),
                ("m", None),
                ("n", 1),
                ("n", "stable"),
            )
        }
        asked |= {f"cached {key[:2]}": lambda key=key: _content(reader.open_artifact(key)) for key in (A, B, C)}  # type: ignore[misc]
        asked["versions"] = lambda: [
            (v.number, v.publication, [t.key for t in v.targets]) for v in reader.versions("m")
        ]
        asked["labels"] = lambda: dict(reader.labels("m"))
        asked["page"] = lambda: [(v.number, v.index.digest) for v in versions_page(reader, "m").items]
        asked["changes"] = lambda: [change.id for change in changes_page(reader).items]
        return {name: _answer(ask) for name, ask in asked.items()}

    def put_back(self, before: Path) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(before, self.root)


def _content(opened: Any) -> tuple[str, str, bytes]:
    return opened.manifest.key, opened.plan.name, bytes(opened.weights)


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except IngotError as error:
        return error.code


def fits(expected: Any, received: Any) -> bool:
    """The same, less of it, or an error: never something else."""
    if isinstance(received, ErrorCode):
        return True
    if isinstance(expected, dict):
        return bool(received.items() <= expected.items())
    if isinstance(expected, list):
        return all(item in expected for item in received)
    return bool(expected == received)


@dataclass
class Bucket(Scene):
    """The same behind an S3 endpoint."""

    @property
    def store(self) -> ObjectStore:
        return open_store("s3://attacked/store", self.root / "cache")

    def objects(self) -> list[str]:
        return [
            info.key
            for folder in ("artifacts", "audit", "blobs", "models", "staged")
            for info in self.store.list(folder)
        ]


@pytest.mark.services
def test_a_bucket_is_proven_like_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("attacked") as url:
        settings = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "REGION": "us-east-1"}
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        scene, memory = Bucket.make(tmp_path), Memory()
        expected = scene.answers(memory)
        assert not any(isinstance(answer, ErrorCode) for answer in expected.values())
        kept = {path: scene.store.get(path) for path in scene.objects()}
        for one, two in random.Random(0).sample(pairs(list(kept), 40), 16):
            scene.store.put(one, kept[two])
            found = scene.answers(memory)
            assert {name: a for name, a in found.items() if not fits(expected[name], a)} == {}, f"{one}, {two}"
            scene.store.put(one, kept[one])
        assert scene.answers(memory) == expected


@pytest.fixture(name="scene")
def fixture_scene(tmp_path: Path) -> Scene:
    return Scene.make(tmp_path / "store")


@pytest.fixture(name="before")
def fixture_before(scene: Scene, tmp_path: Path) -> Path:
    shutil.copytree(scene.root, tmp_path / "before")
    return tmp_path / "before"


def changed_bytes(scene: Scene, seed: int) -> Iterator[str]:
    """Every object with some byte changed, taken away, doubled, or cut off."""
    generator = random.Random(seed)
    for path in scene.objects():
        data = scene.store.get(path)
        place = generator.randrange(len(data))
        flipped = bytes([data[place] ^ (1 << generator.randrange(8))])
        changed = (data[:place] + flipped + data[place + 1 :], data[:place], data[:place] + data[place:] * 2, b"")
        for new in changed[: 1 if path.startswith("audit/") or "/contents/" in path else 4]:
            (scene.root / path).write_bytes(new)
            yield f"{path} at {place}"
        (scene.root / path).unlink()
        yield f"{path} is gone"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_object_may_be_changed(scene: Scene, before: Path, seed: int) -> None:
    memory = Memory()  # without it nobody could tell that the newest version is gone
    expected = scene.answers(memory)
    assert not any(isinstance(answer, ErrorCode) for answer in expected.values())
    for what in changed_bytes(scene, seed):
        found = scene.answers(memory)
        assert {name: a for name, a in found.items() if not fits(expected[name], a)} == {}, what
        scene.put_back(before)


def pairs(objects: Sequence[str], most: int) -> list[tuple[str, str]]:
    """Those of records, all of them, and ``most`` of the others: blobs, and what is derived."""
    found = list(itertools.permutations(objects, 2))
    told = ("artifacts/", "staged/", "versions/", "labels/")
    records = [pair for pair in found if all(any(part in path for part in told) for path in pair)]
    others = sorted(set(found) - set(records))
    return records + random.Random(most).sample(others, min(most, len(others)))


def test_any_two_objects_may_be_swapped_or_copied(scene: Scene, before: Path) -> None:
    expected = scene.answers()
    for one, two in pairs(scene.objects(), 100 * SEEDS):
        data = scene.store.get(two)
        if one < two:  # else it is the copy in the other direction that is new
            (scene.root / two).write_bytes(scene.store.get(one))
        (scene.root / one).write_bytes(data)
        found = scene.answers()
        assert {name: a for name, a in found.items() if not fits(expected[name], a)} == {}, f"{one}, {two}"
        (scene.root / one).write_bytes((before / one).read_bytes())
        (scene.root / two).write_bytes((before / two).read_bytes())


def test_nothing_older_is_taken_by_who_saw_the_newer(tmp_path: Path) -> None:
    """Each object, and all of them, set back to what they were: a reader that remembers refuses, or is not affected."""
    scene = Scene.make(tmp_path / "store")
    shutil.copytree(scene.root, tmp_path / "older")
    writer = scene.writer()
    writer.put_artifact(toy_artifact("four", b"4" * 128, key="ee" * 32))
    writer.publish("m", ["ee" * 32], "job4", ["stable"])
    writer.delete_label("m", "old")
    shutil.copytree(scene.root, tmp_path / "newer")
    expected = scene.answers(Memory(tmp_path / "seen.db"))
    assert expected["open m stable"][1] == "four"
    older = {str(p.relative_to(tmp_path / "older")) for p in (tmp_path / "older").rglob("*") if p.is_file()}
    for path in sorted(older | set(scene.objects())):
        if path in older:
            shutil.copy(tmp_path / "older" / path, scene.root / path)
        else:
            (scene.root / path).unlink()
        found = scene.answers(Memory(tmp_path / "seen.db"))  # another process of the same home
        assert {name: a for name, a in found.items() if not fits(expected[name], a)} == {}, path
        scene.put_back(tmp_path / "newer")
    scene.put_back(tmp_path / "older")
    found = scene.answers(Memory(tmp_path / "seen.db"))
    assert {name: a for name, a in found.items() if not fits(expected[name], a)} == {}
    assert found["open m stable"] is found["open m None"] is ErrorCode.ARTIFACT_UNTRUSTED
    assert scene.answers()["open m stable"][1] == "two"  # who saw nothing cannot know


def test_an_artifact_under_the_key_of_another_is_none(scene: Scene) -> None:
    store = scene.store
    store.put(f"artifacts/{A}.json", store.get(f"artifacts/{B}.json"))
    assert scene.reader().find_artifact(A) is None
    with pytest.raises(IngotError, match="needs an artifact"):
        scene.writer().publish("m", [A])


def test_what_was_not_verified_is_not_published(scene: Scene) -> None:
    key = "dd" * 32
    store = scene.store
    store.put(f"artifacts/{key}.json", store.get(f"staged/{key}.json"))
    assert scene.reader().find_artifact(key) is None
    assert scene.reader().find_artifact(key, staged=True) is not None
    with pytest.raises(IngotError, match="needs an artifact"):
        scene.writer().publish("m", [key])
    scene.writer().promote(key, {"verification": "good"})
    assert scene.reader().open_artifact(key).report == {"verification": "good"}
    assert bytes(scene.reader().open_artifact(key).weights) == b"u" * 128


def test_a_version_of_one_model_is_none_of_another(scene: Scene) -> None:
    scene.store.put(VERSION.format("m", 1), scene.store.get(VERSION.format("n", 1)))
    with pytest.raises(IngotError, match="belongs to another version") as caught:
        scene.reader().open("m", 1)
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
    assert [version.number for version in scene.reader().versions("m")] == [2]


def test_what_a_record_says_beyond_its_digest_does_not_count(scene: Scene) -> None:
    path = VERSION.format("m", 1)
    record = json.loads(scene.store.get(path))
    changes = {"name": "n", "number": 7, "publication": "job9", "model_sha256": "0" * 64, "targets": []}
    scene.store.put(path, json.dumps(record | changes).encode())
    version = scene.reader().version("m", 1)
    assert (version.name, version.number, version.publication) == ("m", 1, "job1")
    assert [target.key for target in version.targets] == [A]


def test_a_label_must_be_signed_and_is_told_how(scene: Scene) -> None:
    scene.store.put(LABELS.format("m", "stable"), b'{"version":1}')
    with pytest.raises(IngotError, match=r"not signed.*ingot models m --set-label stable=") as caught:
        scene.reader().resolve("m", "stable")
    assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    assert scene.reader().labels("m") == {"old": 1, "canary": 2}
    scene.writer().set_label("m", "stable", 1)
    assert scene.reader().resolve("m", "stable").number == 1


def test_a_label_can_be_set_again_after_it_was_deleted_or_lost(scene: Scene, tmp_path: Path) -> None:
    memory = Memory(tmp_path / "seen.db")
    ways: tuple[Callable[[], None], ...] = (
        lambda: scene.writer().delete_label("m", "stable"),
        lambda: scene.store.delete("models/m/labels/stable.json"),
    )
    for take_away in ways:
        assert scene.reader(memory).labels("m")["stable"] == 2
        take_away()
        assert "stable" not in scene.reader(memory).labels("m")
        scene.writer().set_label("m", "stable", 2)
    assert scene.reader(memory).labels("m")["stable"] == 2


HOSTILE = ("NaN", "1e999", "-1", "[" * 5000 + "]" * 5000, "null", "{}", "9" * 5000, '"\\ud800"')


def written_with(record: dict[str, Any], hostile: str) -> Iterator[str]:
    """A record with a hostile value in place of each of its own, and one beside them."""
    for field in (*record, "other"):
        yield json.dumps(record | {field: "@"}).replace('"@"', hostile)
    for field, own in record.items():
        if isinstance(own, dict):
            yield from (json.dumps(record | {field: own | {name: "@"}}).replace('"@"', hostile) for name in own)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: text[:9])
@pytest.mark.parametrize("folder", ["bundles", "contents", "versions", "labels"])
def test_who_writes_beside_spoiled_records_is_not_stopped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, folder: str, hostile: str
) -> None:
    """Bundles and claims are read and written again by who publishes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    scene.writer().put_artifact(toy_artifact("four", b"4" * 128, key="ee" * 32))
    paths = [path for path in scene.objects() if path.startswith(f"models/m/{folder}/")]
    for path in paths:
        before = scene.store.get(path)
        for text in written_with(json.loads(before), hostile):
            scene.store.put(path, text.encode())
            version = scene.writer().publish("m", [A, "ee" * 32], "job4", ["fresh"])
            assert scene.reader().resolve("m", "fresh").number == version.number
            again = scene.writer().publish("m", [A], "job5")
            assert [target.key for target in scene.reader().version("m", again.number).targets] == [A]
        scene.store.put(path, before)
    assert paths


def test_strange_names_beside_the_records_harm_nobody(scene: Scene) -> None:
    expected = scene.answers()
    for name in ("x.json", "1.5.json", "-3.json", "00000000.json", "٣.json", "9" * 40 + ".txt"):
        for folder in ("versions", "labels"):
            (scene.root / "models/m" / folder / name).write_bytes(b"{}")
    (scene.root / "models/a b/versions").mkdir(parents=True)
    (scene.root / "models/a b/versions/00000001.json").write_bytes(b"{}")
    assert scene.answers() == expected
    assert scene.reader().models() == ("m", "n")


def test_memory_that_cannot_be_kept_is_still_that_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    memory = Memory(tmp_path / "file" / "seen.db")
    memory.refuse_older("label", 2, "x")
    with pytest.raises(IngotError, match="gone back"):
        memory.refuse_older("label", 1, "y")
    with pytest.raises(IngotError, match="something else"):
        memory.refuse_older("label", 2, "y")


@pytest.mark.parametrize("damage", ["no database", "half", "another table", "no number"])
def test_damaged_memory_is_refused_and_not_forgotten(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "seen.db"
    Memory(file).refuse_older("label7", 2, "x")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany("INSERT INTO seen VALUES (?, 2, 'x')", [(f"other{i}" * 20,) for i in range(200)])
    if damage == "no database":
        file.write_bytes(b"garbage " * 1000)
    elif damage == "half":
        data = file.read_bytes()
        file.write_bytes(data[:4096] + bytes(len(data) - 4096))
    else:
        change = (
            "ALTER TABLE seen RENAME TO gone" if damage == "another table" else "UPDATE seen SET generation = 'two'"
        )
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(change)
    for together in (False, True):
        memory = Memory(file)
        with memory.together() if together else nullcontext():
            with pytest.raises(IngotError, match="cannot be read") as caught:
                memory.refuse_older("label7", 1, "y")
            assert caught.value.code is ErrorCode.ARTIFACT_UNTRUSTED
    file.unlink()
    Memory(file).refuse_older("label7", 1, "y")


@pytest.mark.parametrize("how", ["written", "cut short"])
def test_weights_stay_what_they_were_when_they_were_verified(scene: Scene, how: str) -> None:
    """A mapping of the file showed what was written later, and ended the process with SIGBUS where it was cut short."""
    opened = scene.reader().open("m", 1)
    path = opened.weights_path
    path.chmod(0o644)
    with path.open("r+b") as file:
        if how == "written":
            file.write(b"evil")
        else:
            file.truncate(0)
    assert bytes(opened.weights) == b"aa" * 64
    assert opened.weights.readonly
