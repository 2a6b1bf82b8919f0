"""Published models through a real client: labels that are compared first, pages, deletions, the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

import ingot
from ingot.cli.main import main
from shared_ir.artifact.repository import ArtifactRepository
from shared_ir.artifact.signature import SigningKey, TrustStore
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.status import attached_error
from shared_ir.storage.local import FileStore
from tests.compiler_service.api.test_access import trailing
from tests.services.artifacts import toy_artifact
from tests.services.installation import Installation, installation

pytestmark = pytest.mark.services


@pytest.fixture(name="service", scope="module")
def fixture_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Its worker signs what the API orders; what it would publish, :func:`publish` does."""
    with installation(tmp_path_factory.mktemp("home")) as service:
        service.start_worker()
        service.start_server()
        yield service


@pytest.fixture(name="people")
def fixture_people(service: Installation) -> Iterator[ingot.Client]:
    with ingot.Client(service.address) as client:
        yield client


def publish(service: Installation, name: str, count: int, labels: Sequence[str] = ()) -> None:
    signer = SigningKey.load(service.home / "signing.pem")
    repository = ArtifactRepository(FileStore(service.home / "store"), TrustStore.of([signer.public]), signer)
    for number in range(count):
        key = sha256_hex(f"{name} {number}".encode())
        repository.put_artifact(toy_artifact("toy", key=key))
        assert repository.publish(name, [key], f"job{number}", labels).number == number + 1


def test_a_label_is_moved_only_from_where_it_was_seen(service: Installation, people: ingot.Client) -> None:
    publish(service, "cas", 3)
    model = people.set_label("cas", "stable", 1, etag="0")
    (label,) = model.label_details
    assert (label.label, label.version, label.moved > 0, bool(label.by)) == ("stable", 1, True, True)
    with pytest.raises(IngotError, match="moved by somebody else") as caught:
        people.set_label("cas", "stable", 2, etag="0")
    assert caught.value.code is ErrorCode.CONFLICT
    assert "version 1" in caught.value.received
    seen = model.etag("stable")
    assert people.set_label("cas", "stable", 2, seen).labels == {"stable": 2}
    calls: list[Callable[[], object]] = [
        lambda: people.set_label("cas", "stable", 3, seen),
        lambda: people.delete_label("cas", "stable", seen),
    ]
    for call in calls:
        with pytest.raises(IngotError) as caught:
            call()
        assert caught.value.code is ErrorCode.CONFLICT
    people.set_label("cas", "stable", 1)
    assert people.set_label("cas", "stable", 2).etag("stable") != seen  # back where it was, and still another
    left = people.delete_label("cas", "stable", people.model("cas").etag("stable"))
    assert (left.labels, left.etag("stable")) == ({}, "0")
    assert people.set_label("cas", "stable", 3, "0").labels == {"stable": 3}


def test_of_many_who_move_a_label_from_where_they_saw_it_one_does(service: Installation) -> None:
    publish(service, "race", 4)
    with ingot.Client(service.address) as people:
        etag = people.set_label("race", "stable", 1).etag("stable")

        def move(version: int) -> bool:
            try:
                people.set_label("race", "stable", version, etag)
            except IngotError as error:
                return error.code is not ErrorCode.CONFLICT
            return True

        with ThreadPoolExecutor(3) as pool:
            won = list(pool.map(move, (2, 3, 4)))
        assert won.count(True) == 1
        assert people.labels("race")["stable"] == 2 + won.index(True)


def test_lists_in_pages(service: Installation, people: ingot.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(service, "paged", 5)
    publish(service, "paged-other", 1, ["canary"])
    everything = [(version.version, version.created) for version in people.versions("paged")]
    assert [number for number, _ in everything] == [1, 2, 3, 4, 5]
    monkeypatch.setattr("ingot.paging.PAGE_SIZE", 2)
    assert [(version.version, version.created) for version in people.versions("paged")] == everything
    assert [version.version for version in people.versions("paged", limit=3)] == [3, 4, 5]
    assert [version.version for version in people.versions("paged", since=everything[3][1])] == [4, 5]
    assert [version.version for version in people.versions("paged", target="x86-64-v3", limit=1)] == [5]
    assert people.versions("paged", target="cortex-a72") == ()
    assert [model.name for model in people.models("paged")] == ["paged", "paged-other"]
    assert [model.name for model in people.models("paged", label="canary")] == ["paged-other"]
    assert len(people.models(limit=1)) == 1
    for page in ({"page_token": "x"}, {"page_size": -1}):
        with pytest.raises(IngotError) as caught:
            people._call("ListModels", pb.ListModelsRequest(**page))
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_deletions_and_who_did_them(service: Installation, people: ingot.Client) -> None:
    publish(service, "gone", 2, labels=["stable"])
    people.delete_version("gone", 1)
    for call in (lambda: people.delete_version("gone", 2), lambda: people.delete_model("gone")):
        with pytest.raises(IngotError, match="labels that point") as caught:
            call()
        assert caught.value.code is ErrorCode.CONFLICT
    assert people.delete_model("gone", force=True) == 1
    for lost in (
        lambda: people.model("gone"),
        lambda: people.versions("gone"),
        lambda: people.delete_version("gone", 2),
    ):
        with pytest.raises(IngotError) as caught:
            lost()
        assert caught.value.code is ErrorCode.NOT_FOUND
    told = [(e.action, e.version, e.label, e.before) for e in people.events("gone")]
    assert [action for action, *_ in told] == [
        "delete-model",
        "delete-label",
        "delete-version",
        "set-label",
        "publish",
        "set-label",
        "publish",
    ]
    assert told[1] == ("delete-label", 0, "stable", "2")
    assert all(event.by for event in people.events("gone"))
    assert [e.action for e in people.events("gone", action="publish", limit=1)] == ["publish"]


def test_the_command_line(service: Installation, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    publish(service, "typed", 3)
    own = ["--address", service.address, "--home", str(tmp_path)]

    def told(*arguments: str) -> Any:
        assert main([*arguments, *own, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    shown = told("models", "typed", "--set-label", "stable=2", "--etag", "0", "--delete-version", "1", "--limit", "1")
    assert [version["version"] for version in shown["versions"]] == [3]
    assert shown["model"]["label_details"][0]["version"] == 2
    assert main(["models", "typed", "--set-label", "stable=3", "--etag", "0", *own]) == 1
    assert "moved by somebody else" in capsys.readouterr().err
    assert main(["models", "typed", "--limit", "1", *own]) == 0
    assert "--limit 0 shows" in capsys.readouterr().err
    assert told("models", "--prefix", "type")[0]["name"] == "typed"
    assert told("models", "typed", "--delete", "--force") == {"deleted": "typed", "versions": 2}
    assert [event["action"] for event in told("events", "typed", "--limit", "2")] == ["delete-model", "delete-label"]
    assert told("events", "typed", "--since", "2999-01-01") == []
    with pytest.raises(SystemExit, match="2"):
        main(["events", "--since", "yesterday", *own])
    assert "is not a time" in capsys.readouterr().err


def timed() -> Iterator[tuple[str, str, str]]:
    """Method, request and field of each time that a client can send."""
    for method in pb.DESCRIPTOR.services_by_name["CompilerService"].methods:
        for field in method.input_type.fields:
            if field.message_type is not None and field.message_type.full_name == "google.protobuf.Timestamp":
                yield method.name, method.input_type.name, field.name


@pytest.mark.parametrize(("method", "request_name", "field"), sorted(timed()))
def test_numbers_that_are_no_time_are_refused(
    service: Installation, method: str, request_name: str, field: str
) -> None:
    client, model = service.client(), f"timed-{method}-{field}".lower()
    publish(service, model, 1)

    def ask(seconds: int, nanos: int) -> Any:
        request = getattr(pb, request_name)(**({"name": model} if method == "ListVersions" else {}))
        getattr(request, field).seconds, getattr(request, field).nanos = seconds, nanos
        return getattr(client.stub, method)(request, metadata=client.metadata, timeout=10)

    for seconds, nanos in (
        (2**62, 0),
        (-(2**62), 0),
        (253402300800, 0),
        (0, -5),
        (0, 2**31 - 1),
        (2**63 - 1, -(2**31)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            ask(seconds, nanos)
        error = attached_error(trailing(caught.value))
        assert error is not None
        assert (error.code, error.field, str(seconds) in error.received) == (ErrorCode.INVALID_ARGUMENT, field, True)
    all_of_them = {"since": (-62135596800, 1), "until": (253402300799, 999_999_999)}
    none_of_them = {"since": all_of_them["until"], "until": (-1, 0)}
    assert ask(*all_of_them[field]) == ask(0, 0)
    assert not ask(*none_of_them[field]).ListFields()
