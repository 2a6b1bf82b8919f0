"""The registry behind an API that holds no key, with two workers: whoever asks, what is his is done, and what is of others is not there."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest

import ingot
from compiler_service.api.namespaces import OF_JOB
from compiler_service.api.permissions import SCOPES
from compiler_service.jobs.clerk import OrderingRegistry
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.registry import pages
from shared_ir.registry.pages import ChangeFilter, ModelFilter
from shared_ir.service_kit.access.principal import TokenScope
from shared_ir.service_kit.status import attached_error
from tests.compiler_service.api.divided import Divided, divided
from tests.compiler_service.api.test_access import METHODS, REQUESTS
from tests.services.installation import Client

pytestmark = pytest.mark.services
SPELLINGS = (
    "",
    "net",
    "vision.net",
    ".net",
    "../vision.net",
    "x/../../vision.net",
    "speech.vision.net",
    "vision",
    "vision.",
    "v",
    "stable",
    "\x00vision.net",
    "*",
)
BESIDE: dict[str, dict[str, Any]] = {
    "SetLabel": {"label": "stable", "version": 3},
    "DeleteLabel": {"label": "stable"},
    "DeleteVersion": {"version": 1},
    "DeleteModel": {"force": True},
    "DownloadArtifact": {"version": 1},
    "Compile": {"targets": ["x86-64-v3"], "labels": ["stable"]},
}
"""What a request says beside a name."""
LISTS = {"ListModels": {}, "ListEvents": {}, "ListVersions": {"name": "vision.net"}}
"""Methods with pages, and whose pages somebody who sees everything is given tokens of."""
FORGED = (
    pages.write_token("a", ModelFilter("speech.")),
    pages.write_token("vision.a", ModelFilter("speech.")),
    pages.write_token("../models/vision.net", ChangeFilter(prefix="speech.")),
    pages.write_token("000000/0", ChangeFilter(prefix="speech.")),
)
"""Tokens that go on somewhere else: what they are made of is no secret."""


@pytest.fixture(name="scene", scope="module")
def fixture_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divided]:
    with divided(tmp_path_factory.mktemp("divided")) as scene:
        assert isinstance(scene.api.repository, OrderingRegistry)
        yield scene


def refused(act: Any) -> IngotError:
    with pytest.raises(IngotError) as caught:
        act()
    return caught.value


# ---- what is ordered is done


def test_the_api_has_it_done_in_the_name_of_who_asks(scene: Divided) -> None:
    ann = scene.client("ann-1", "sound")
    scene.publish("sound.net", 3)
    model = ann.set_label("net", "stable", 1, etag="0")
    assert (model.name, model.label_details[0].by) == ("net", "ann-1")
    assert refused(lambda: ann.set_label("net", "stable", 2, etag="0")).code is ErrorCode.CONFLICT
    ann.set_label("net", "stable", 2, model.etag("stable"))
    assert refused(lambda: ann.delete_label("net", "stable", model.etag("stable"))).code is ErrorCode.CONFLICT
    assert refused(lambda: ann.delete_version("net", 2)).code is ErrorCode.CONFLICT
    ann.delete_version("net", 1)
    assert refused(lambda: ann.delete_version("net", 1)).code is ErrorCode.NOT_FOUND
    assert refused(lambda: ann.set_label("net", "stable", 1)).code is ErrorCode.NOT_FOUND
    assert refused(lambda: ann.delete_model("net")).code is ErrorCode.CONFLICT
    assert ann.delete_model("net", force=True) == 2
    told = [(event.action, event.by, event.model, event.version) for event in ann.events()]
    assert told[:4] == [
        ("delete-model", "ann-1", "net", 0),
        ("delete-label", "ann-1", "net", 0),
        ("delete-version", "ann-1", "net", 1),
        ("set-label", "ann-1", "net", 2),
    ]
    assert len(scene.client("sound-root").events("sound.net", by="ann-1")) == 5


def test_of_many_who_move_a_label_from_where_they_saw_it_one_does(scene: Divided) -> None:
    scene.publish("cas.net", 6)
    people = {number: scene.client(f"cas-{number}", "cas") for number in range(1, 7)}
    etag = people[1].set_label("net", "stable", 6).etag("stable")

    def move(number: int) -> ErrorCode | None:
        try:
            people[number].set_label("net", "stable", number, etag)
        except IngotError as error:
            return error.code
        return None

    with ThreadPoolExecutor(5) as pool:
        ends = list(pool.map(move, range(1, 6)))
    assert sorted(map(str, ends)) == ["CONFLICT"] * 4 + ["None"]
    winner = 1 + ends.index(None)
    (label,) = people[1].model("net").label_details
    assert (label.version, label.by) == (winner, f"cas-{winner}")
    assert [event.by for event in people[1].events("net", "set-label")] == [f"cas-{winner}", "cas-1"]


def test_a_label_never_points_at_what_two_workers_delete(scene: Divided) -> None:
    scene.publish("race.net", 8)
    mover, remover = scene.client("race-mover", "race"), scene.client("race-remover", "race")
    mover.set_label("net", "stable", 8)

    def ended(act: Any) -> bool:
        try:
            act()
        except IngotError as error:
            if error.code not in (ErrorCode.CONFLICT, ErrorCode.NOT_FOUND):
                raise
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for number in range(1, 8):
            acts = (
                partial(mover.set_label, "net", "stable", number),
                partial(remover.delete_version, "net", number),
            )
            moved, deleted = pool.map(ended, acts)
            assert not (moved and deleted)
            held, there = mover.labels("net").get("stable"), [own.version for own in mover.versions("net")]
            assert held in there
            assert deleted == (number not in there)


# ---- what is of others is not there


@dataclass(frozen=True)
class Victim:
    """Of the namespace ``vision``; ``ids`` are those of a job and a file of it."""

    client: ingot.Client
    ids: tuple[str, ...]


@pytest.fixture(name="victim", scope="module")
def fixture_victim(scene: Divided) -> Victim:
    victim = scene.client("victor", "vision")
    scene.publish("vision.net", 3, by="victor")
    victim.set_label("net", "stable", 2)
    scene.publish("speech.own", 1, by="eve")
    plain = scene.plain("victor-2", "vision")
    sha256 = plain.upload(b"{}")
    source = pb.ModelSource(model_sha256=sha256)
    (answer,) = answers(plain, "Compile", pb.CompileRequest(name="net", source=source, targets=["x86-64-v3"]))
    return Victim(victim, (answer.job.id, sha256))


def everything(client: ingot.Client) -> Any:
    models = client.models()
    return [(model, client.versions(model.name)) for model in models], client.events(), client.jobs()


def strings_of(answer: Any) -> str:
    """Everything that an answer holds, what its page tokens are made of too."""
    token = getattr(answer, "next_page_token", "")
    return f"{answer} {base64.urlsafe_b64decode(token.encode()).decode() if token else ''}"


def requests_of(method: str, ids: tuple[str, ...], tokens: list[str]) -> Iterator[Any]:
    """With every spelling in every field of text, among them tokens of pages of others."""
    kind = REQUESTS[method]
    fields = {field.name: field for field in kind.DESCRIPTOR.fields}
    base = BESIDE.get(method, {})
    texts = [name for name in ("name", "model", "prefix", "id", "sha256") if name in fields]
    for spelling in (*SPELLINGS, *ids):
        yield kind(**base, **dict.fromkeys(texts, spelling))
        if "page_token" in fields:
            for token in tokens:
                yield kind(**base, **dict.fromkeys(texts, spelling), page_token=token)


def answers(client: Client, method: str, request: Any) -> list[Any]:
    argument = iter([request]) if METHODS[method].client_streaming else request
    answer = getattr(client.stub, method)(argument, metadata=client.metadata, timeout=10)
    return list(answer) if METHODS[method].server_streaming else [answer]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_nothing_of_others_is_seen_or_changed_by_any_method(scene: Divided, victim: Victim, method: str) -> None:
    before, digest = everything(victim.client), victim.client.versions("net")[0].digest
    attacker, root = scene.plain(f"eve-{method}", "speech"), scene.plain(f"root-{method}")
    tokens = list(FORGED)
    if method in LISTS:
        (page,) = answers(root, method, REQUESTS[method](page_size=1, **LISTS[method]))
        assert page.next_page_token
        tokens.append(page.next_page_token)
    is_forged = set()
    for request in requests_of(method, victim.ids, tokens):
        try:
            found = answers(attacker, method, request)
            is_forged.add(getattr(request, "page_token", "") in FORGED)
        except grpc.RpcError as caught:
            metadata: Any = caught.trailing_metadata()
            error = attached_error(metadata)
            assert error is not None
            assert error.code is not ErrorCode.INTERNAL, (request, error)
            text = " ".join((error.message, error.expected, error.received))
            own = " ".join(str(value) for _, value in request.ListFields())
            found = [text] if not any(word in own for word in ("vision", *tokens)) else []
        for answer in found:
            for secret in ("vision", "victor", digest):
                assert secret not in strings_of(answer), (request, answer)
            assert method not in OF_JOB or isinstance(answer, str), "a job of others was there"
            assert method != "QueryUpload" or (answer if isinstance(answer, str) else not answer.received)
    assert (True in is_forged) == (method in ("ListModels", "ListEvents")), (
        "no forged token was taken: nothing was tried"
    )
    assert everything(victim.client) == before


def test_a_scope_of_its_own_deletes(scene: Divided) -> None:
    scene.publish("scoped.net", 1)
    every = set(TokenScope)
    without = scene.client("no-delete", "scoped", *(every - {TokenScope.DELETE}))
    for act in (lambda: without.delete_version("net", 1), lambda: without.delete_model("net", force=True)):
        assert refused(act).code is ErrorCode.PERMISSION_DENIED
    assert [event.action for event in without.events()] == ["publish"]
    only = scene.client("only-delete", "scoped", TokenScope.DELETE)
    assert refused(only.events).code is ErrorCode.PERMISSION_DENIED
    only.delete_version("net", 1)
    assert set(SCOPES) == set(METHODS)


def test_lists_of_a_namespace_have_whole_pages(scene: Divided, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cut after what is of others has been left out, and the tokens of pages say nothing of it."""
    for number in range(4):
        scene.publish(f"left.m{number}", 1)
        scene.publish(f"right.n{number}", 1)
    left = scene.plain("lea", "left")

    def walked(method: str, field: str) -> list[str]:
        names, token, count = list[str](), "", 0
        while token or not count:
            request = REQUESTS[method](page_size=2, page_token=token)
            (page,) = answers(left, method, request)
            found = getattr(page, field)
            names += [own.model if field == "events" else own.name for own in found]
            assert len(found) == 2 or count or pages._MOST_LOOKED_AT == 1
            token, count = page.next_page_token, count + 1
            assert "right" not in strings_of(page)
            assert count < 50
        return names

    assert walked("ListModels", "models") == ["m0", "m1", "m2", "m3"]
    assert walked("ListEvents", "events") == ["m3", "m2", "m1", "m0"]
    with monkeypatch.context() as patch:
        patch.setattr(pages, "_MOST_LOOKED_AT", 1)
        assert walked("ListEvents", "events") == ["m3", "m2", "m1", "m0"]
    (found,) = answers(left, "ListModels", pb.ListModelsRequest(prefix="m3"))
    assert [model.name for model in found.models] == ["m3"]
    (found,) = answers(left, "ListEvents", pb.ListEventsRequest(model="m1"))
    assert [event.model for event in found.events] == ["m1"]
