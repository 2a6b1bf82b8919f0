"""Published models: versions, labels, and what happens when two publish at once."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shared_ir.artifact import labels
from shared_ir.artifact.audit import Change
from shared_ir.artifact.labels import LabelRecords
from shared_ir.artifact.layout import open_version
from shared_ir.artifact.published import blob_key
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.local import FileStore
from tests.services.artifacts import toy_artifact

A, B = "aa" * 32, "bb" * 32


@pytest.fixture(name="repository")
def fixture_repository(tmp_path: Path) -> ArtifactRepository:
    key = SigningKey.generate()
    repository = ArtifactRepository(FileStore(tmp_path / "store"), TrustStore.of([key.public]), key)
    repository.put_artifact(toy_artifact("one", key=A))
    repository.put_artifact(toy_artifact("two", key=B, weights=b"v" * 64))
    return repository


def test_artifacts_by_key(repository: ArtifactRepository) -> None:
    assert repository.find_artifact(A) == toy_artifact("one", key=A).manifest
    assert repository.find_artifact("cc" * 32) is None
    assert repository.open_artifact(B).to_artifact() == toy_artifact("two", key=B, weights=b"v" * 64)


def test_publish_open_and_labels(repository: ArtifactRepository) -> None:
    first = repository.publish("m", [A], "job1", ["stable"])
    second = repository.publish("m", [B], "job2")
    assert (first.number, second.number) == (1, 2)
    assert repository.models() == ("m",)
    assert [v.number for v in repository.versions("m")] == [1, 2]
    assert repository.open("m", "stable").manifest.name == "one"
    assert repository.open("m").manifest.name == "two"
    assert repository.open("m", "1").manifest.name == "one"
    repository.set_label("m", "stable", 2)
    assert repository.open("m", "stable").manifest.name == "two"
    assert repository.labels("m") == {"stable": 2}
    repository.delete_label("m", "stable")
    assert repository.labels("m") == {}


def test_publishing_again_for_the_same_job_finds_the_version(repository: ArtifactRepository) -> None:
    first = repository.publish("m", [A], "job1")
    assert repository.publish("m", [A], "job1", ["canary"]) == first
    assert repository.version_numbers("m") == (1,)
    assert repository.labels("m") == {"canary": 1}


def test_versions_published_at_once_get_numbers_of_their_own(repository: ArtifactRepository) -> None:
    keys = [f"{number:02x}" * 32 for number in range(6)]
    for key in keys:
        repository.put_artifact(toy_artifact("toy", key=key))
    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(lambda key: writer(repository).publish("m", [key], f"job {key}"), keys))
    assert sorted(v.number for v in versions) == [1, 2, 3, 4, 5, 6]
    for key, version in zip(keys, versions, strict=True):
        assert repository.open("m", version.number).manifest.key == key


def test_what_is_the_same_is_published_once_by_all_who_do_so_at_once(repository: ArtifactRepository) -> None:
    for round in range(5):
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda n: writer(repository).publish(f"m{round}", [B, A], f"job{n}"), range(6)))  # noqa: B023
        assert {version.number for version in found} == {1}
        assert repository.version_numbers(f"m{round}") == (1,)
    assert repository.publish("m0", [A, B]).number == 1  # in any order
    assert repository.publish("m0", [A]).number == 2
    assert [c.version for c in repository.audit.newest(action="publish") if isinstance(c, Change)] == [2, 1, 1, 1, 1, 1]


def test_who_finds_a_claim_of_somebody_who_died_fulfils_it(
    repository: ArtifactRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository.publish("m", [A], "job1")
    path = "models/m/versions/00000001.json"
    repository.store.delete(path)  # as if the publisher had died before he wrote it
    second = writer(repository).publish("m", [A], "job2")
    assert second == first
    assert second.publication == "job1"
    repository.store.delete(path)
    writer(repository).publish("m", [B], "job3")  # which takes the number
    assert writer(repository).publish("m", [A], "job2").number == 2


def writer(repository: ArtifactRepository) -> ArtifactRepository:
    """Another process, with a memory of its own."""
    return ArtifactRepository(repository.store, repository.trust, repository.signer)


def test_everything_is_found_again_by_another_process(repository: ArtifactRepository) -> None:
    repository.publish("m", [A], "job1", ["stable"])
    reader = ArtifactRepository(repository.store, repository.trust)
    assert reader.open("m", "stable").manifest.key == A
    with pytest.raises(IngotError, match="without a signing key"):
        reader.publish("m", [A])


def test_a_version_cannot_stand_in_for_another(repository: ArtifactRepository) -> None:
    repository.publish("m", [A], "job1")
    repository.publish("m", [B], "job2")
    store = repository.store
    old = store.get("models/m/versions/00000001.json")
    store.put("models/m/versions/00000002.json", old.replace(b'"number":1', b'"number":2'))
    with pytest.raises(IngotError, match="belongs to another version"):
        repository.open("m", 2)


def test_fetch_makes_a_layout_that_opens(repository: ArtifactRepository, tmp_path: Path) -> None:
    repository.publish("m", [A, B], "job1")
    tag = repository.fetch("m", 1, tmp_path / "all")
    assert open_version(tmp_path / "all", tag, repository.trust, lambda ms: ms[1]).manifest.key == B
    tag = repository.fetch("m", None, tmp_path / "one", key=B)
    assert open_version(tmp_path / "one", tag, repository.trust).manifest.key == B
    with pytest.raises(IngotError) as caught:
        repository.fetch("m", 1, tmp_path / "none", key="dd" * 32)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_files_are_those_of_a_layout(repository: ArtifactRepository, tmp_path: Path) -> None:
    version = repository.publish("m", [A], "job1")
    for path, data in repository.files(version):
        target = tmp_path / "copy" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.read_bytes() if isinstance(data, Path) else data)
    assert open_version(tmp_path / "copy", "1", repository.trust).manifest.key == A


def test_the_store_itself_is_an_oci_layout(repository: ArtifactRepository) -> None:
    repository.publish("m", [A], "job1")
    repository.publish("other_model-v2.0", [B], "job2")
    assert shutil.which("skopeo"), "these tests need skopeo (Debian package `skopeo`)"
    assert isinstance(repository.store, FileStore)
    repository.rebuild_index()
    for tag in ("m/1", "other_model-v2.0/1"):
        command = ["skopeo", "inspect", "--raw", f"oci:{repository.store.root}:{tag}"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", ".a", "-a", "a" * 129, "é"])
def test_bad_model_names(repository: ArtifactRepository, name: str) -> None:
    with pytest.raises(IngotError) as caught:
        repository.publish(name, [A])
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_unknown_names_say_what_is_known(repository: ArtifactRepository) -> None:
    repository.publish("m", [A], "job1", ["stable"])
    for call, text in (
        (lambda: repository.open("n"), "one of m"),
        (lambda: repository.open("m", 7), "one of 1"),
        (lambda: repository.open("m", "canary"), "stable"),
        (lambda: repository.set_label("m", "stable", 9), "no version 9"),
        (lambda: repository.delete_label("m", "canary"), "no label"),
        (lambda: repository.publish("m", ["cc" * 32]), "needs an artifact"),
    ):
        with pytest.raises(IngotError, match=text) as caught:
            call()
        assert caught.value.code is ErrorCode.NOT_FOUND
    for label in ("", "Stable", "1", "a/b"):
        with pytest.raises(IngotError) as caught:
            repository.set_label("m", label, 1)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize("label", ["latest", "all"])
def test_no_label_is_called_as_versions_are_meant_otherwise(
    label: str, repository: ArtifactRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.publish("m", [A], "job1", ["stable"])
    for call in (
        lambda: repository.set_label("m", label, 1),
        lambda: repository.publish("m", [A], "job2", ["canary", label]),
    ):
        with pytest.raises(IngotError, match=f"no label may be called '{label}'") as caught:
            call()
        assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "label")
    assert repository.labels("m") == {"stable": 1}
    with monkeypatch.context() as before:  # a version that knew no such rule
        before.setattr("shared_ir.artifact.published.NO_LABELS", frozenset())
        repository.set_label("m", label, 1)
    assert repository.resolve("m", label).number == 1
    repository.delete_label("m", label)
    assert repository.labels("m") == {"stable": 1}


@pytest.mark.parametrize("version", ["9" * 5000, "²", "٣", "-1"])
def test_a_version_in_digits_of_any_form_is_not_found(version: str, repository: ArtifactRepository) -> None:
    with pytest.raises(IngotError) as caught:
        repository.resolve("model", version)
    assert caught.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("folder", ["artifacts", "staged"])
def test_a_hit_is_whole(repository: ArtifactRepository, folder: str) -> None:
    """Otherwise it is none, and what is compiled anew takes the place of what was spoiled."""
    staged, artifact = folder == "staged", toy_artifact("whole", b"x" * 5000, key="ee" * 32)
    repository.put_artifact(artifact, staged)
    assert isinstance(repository.store, FileStore)
    target = repository.proven.target("ee" * 32, staged)
    assert target is not None
    assert len(target.blobs) == 5
    for blob in target.blobs:
        path = repository.store.root / blob_key(blob.digest)
        data = path.read_bytes()
        for spoiled in (None, data[:-1], bytes([data[0] ^ 1]) + data[1:]):
            assert repository.find_artifact("ee" * 32, staged) == artifact.manifest
            path.unlink() if spoiled is None else path.write_bytes(spoiled)
            assert repository.find_artifact("ee" * 32, staged) is None
            if not staged:
                with pytest.raises(IngotError, match="needs an artifact"):
                    repository.publish("m", ["ee" * 32])
            repository.put_artifact(artifact, staged)
    assert repository.open_artifact("ee" * 32, staged).to_artifact() == artifact


def test_blobs_are_read_once_for_each_state_they_are_in(
    repository: ArtifactRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    pieces = FileStore.pieces
    monkeypatch.setattr(FileStore, "pieces", lambda store, key: read.append(key) or pieces(store, key))  # type: ignore[func-returns-value]
    reader = writer(repository)
    for _ in range(3):
        assert reader.find_artifact(A) is not None
    assert len(read) == len(set(read)) == 5
    assert isinstance(repository.store, FileStore)
    os.utime(repository.store.root / read[0])
    reader.find_artifact(A)
    assert read[5:] == read[:1]


def test_a_hit_by_a_key_that_is_trusted_no_longer_is_none(repository: ArtifactRepository) -> None:
    other = SigningKey.generate()
    reader = ArtifactRepository(repository.store, TrustStore.of([other.public]), other)
    assert reader.find_artifact(A) is None
    reader.put_artifact(toy_artifact("one", key=A))
    assert reader.find_artifact(A) is not None


def test_labels_moved_at_once_lose_no_move(repository: ArtifactRepository) -> None:
    """Each comes after another: as many generations, and as many events, as there were moves."""
    for key in ("a1" * 32, "b1" * 32, "c1" * 32):
        repository.put_artifact(toy_artifact("toy", key=key))
        repository.publish("m", [key])
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda n: writer(repository).set_label("m", "stable", n % 3 + 1), range(12)))
    moves = [c for c in repository.audit.newest(action="set-label") if isinstance(c, Change)]
    for later, earlier in itertools.pairwise(moves):
        assert later.before != later.after
        assert earlier.time <= later.time
    assert {move.before for move in moves} <= {"", "1", "2", "3"}
    assert repository.labels("m")["stable"] in (1, 2, 3)


@pytest.mark.parametrize("etag", [True, False])
def test_a_label_that_somebody_moves_between_reading_and_writing(
    repository: ArtifactRepository, monkeypatch: pytest.MonkeyPatch, etag: bool
) -> None:
    """Who saw it before has not what he saw; who does not mind comes after it, and tells so."""
    for key in ("a1" * 32, "b1" * 32, "c1" * 32):
        repository.put_artifact(toy_artifact("toy", key=key))
        repository.publish("m", [key])
    repository.set_label("m", "stable", 1)
    seen = repository.all_labels("m").found["stable"].etag
    write, others = LabelRecords._write, [2]

    def late(records: LabelRecords, path: str, data: bytes, tag: str) -> bool:
        if others:
            writer(repository).set_label("m", "stable", others.pop(), by="ann")
        return write(records, path, data, tag)

    monkeypatch.setattr(LabelRecords, "_write", late)
    if etag:
        with pytest.raises(IngotError, match="moved by somebody else"):
            repository.set_label("m", "stable", 3, etag=seen)
    else:
        repository.set_label("m", "stable", 3, by="bob")
    moves = [c for c in repository.audit.newest(action="set-label") if isinstance(c, Change)]
    told = [("bob", "2", "3"), ("ann", "1", "2"), ("", "", "1")]
    assert [(move.by, move.before, move.after) for move in moves] == told[1 if etag else 0 :]
    assert repository.labels("m") == {"stable": 2 if etag else 3}


def test_who_asks_later_is_not_set_back_and_asking_again_is_remembered(repository: ArtifactRepository) -> None:
    repository.publish("m", [A])
    repository.publish("m", [B])
    repository.set_label("m", "stable", 2, asked=100.0)
    etag = repository.all_labels("m").found["stable"].etag
    repository.set_label("m", "stable", 1, asked=99.0)
    assert repository.labels("m")["stable"] == 2
    repository.set_label(
        "m", "stable", 2, asked=110.0
    )  # again: it moves nothing, but nobody who asked before comes after it
    repository.set_label("m", "stable", 1, asked=105.0)
    found = repository.all_labels("m").found["stable"]
    assert (found.number, found.etag) == (2, etag)
    repository.set_label("m", "stable", 1, asked=120.0)
    found = repository.all_labels("m").found["stable"]
    assert (found.number, found.etag == etag) == (1, False)
    repository.set_label("m", "stable", 2)  # a person, whatever the clocks of others say
    assert repository.labels("m")["stable"] == 2


def test_a_model_has_so_many_labels_as_can_be_shown(
    repository: ArtifactRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MOST_LABELS", 3)
    repository.publish("m", [A], "job1", ["a", "b", "c"])
    with pytest.raises(IngotError, match="deleted ones included") as caught:
        repository.set_label("m", "d", 1)
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
    repository.delete_label("m", "a")
    with pytest.raises(IngotError, match="deleted ones included"):
        repository.set_label("m", "d", 1)
    repository.set_label("m", "a", 1)
    assert sorted(repository.labels("m")) == ["a", "b", "c"]
