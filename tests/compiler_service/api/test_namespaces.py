"""What a token of a namespace sees, and what it may hold."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis

from compiler_service.api import namespaces
from compiler_service.jobs import service
from compiler_service.jobs.persistence.quotas import StageQuota
from compiler_service.jobs.persistence.seal import Seal
from compiler_service.jobs.persistence.store import JobStore
from compiler_service.jobs.records import JobState
from compiler_service.keys import worker_keys
from compiler_service.settings import CompilerSettings
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.access.namespace import Namespace
from shared_ir.service_kit.access.principal import Principal
from shared_ir.service_kit.access.token_file import editing
from shared_ir.service_kit.status import attached_error
from tests.compiler_service.api.test_access import METHODS, REQUESTS, Guarded, status, trailing
from tests.services.by_hand import Platform
from tests.services.installation import Client, installation, wait_until
from tests.services.redis_server import redis_server

pytestmark = pytest.mark.services
MODEL = json.dumps({"name": "m"}).encode()


@pytest.fixture(name="guarded")
def fixture_guarded(tmp_path: Path, toy_stages: None) -> Iterator[Guarded]:
    with redis_server() as url:
        home = tmp_path / "home"
        home.mkdir()
        guarded = Guarded(CompilerSettings(redis_url=url, home=home, compiler_port=0, compiler_metrics_port=-1))
        yield guarded
        guarded.running.stop(0)


def compile(client: Client, name: str, model: bytes = MODEL, key: str = "") -> pb.Job:
    job: pb.Job = ask(client, "Compile", **order(client, name, model, key)).job
    return job


def order(client: Client, name: str, model: bytes = MODEL, key: str = "") -> dict[str, Any]:
    """Fields of the request."""
    source = pb.ModelSource(model_sha256=client.upload(model))
    return {"name": name, "source": source, "targets": ["x86-64-v3"], "idempotency_key": key}


def ask(client: Client, method: str, **fields: Any) -> Any:
    return getattr(client.stub, method)(REQUESTS[method](**fields), metadata=client.metadata, timeout=10)


def fault(client: Client, method: str, **fields: Any) -> IngotError:
    def answers() -> list[Any]:
        answer = ask(client, method, **fields)
        return list(answer) if METHODS[method].server_streaming else [answer]

    with pytest.raises(grpc.RpcError) as caught:
        answers()
    error = attached_error(trailing(caught.value))
    assert error is not None
    return error


def test_jobs_of_others_are_not_there(guarded: Guarded) -> None:
    vision, speech, everyone = (
        guarded.client("v", namespace="vision"),
        guarded.client("s", namespace="speech"),
        guarded.client("root"),
    )
    job = compile(vision, "net")
    assert job.name == "net"
    assert ask(vision, "GetJob", id=job.id).name == "net"
    assert [own.name for own in ask(vision, "ListJobs").jobs] == ["net"]
    assert [own.name for own in ask(vision, "ListJobs", name="net").jobs] == ["net"]
    assert [own.name for own in ask(everyone, "ListJobs").jobs] == ["vision.net"]
    assert next(ask(vision, "WatchJob", id=job.id)).job.name == "net"
    assert next(ask(everyone, "WatchJob", id=job.id)).job.name == "vision.net"
    assert [own.user for own in ask(everyone, "ListJobs", user="v", target="x86-64-v3").jobs] == ["v"]
    for chosen in ({}, {"user": "v"}, {"name": "net"}, {"state": pb.JOB_STATE_QUEUED}, {"target": "x86-64-v3"}):
        assert list(ask(speech, "ListJobs", **chosen).jobs) == []
    for method in ("GetJob", "GetJobLog", "WatchJob", "CancelJob"):
        assert fault(speech, method, id=job.id).code is ErrorCode.NOT_FOUND
    assert ask(everyone, "GetJob", id=job.id).state == pb.JOB_STATE_QUEUED
    assert ask(vision, "CancelJob", id=job.id).name == "net"


def test_a_key_of_one_namespace_is_that_of_no_other(guarded: Guarded) -> None:
    """The longest key, too: the namespace is not counted."""
    spaces = ("", "vision", "vision-a", "a")
    clients = [guarded.client(f"u{number}", namespace=namespace) for number, namespace in enumerate(spaces)]
    keys = ("k", "vision:k", "a:k", "vision:a:k", ":k", "k\0", "\0k", "x" * 128)
    jobs = {
        (s, key): compile(client, "net", key=key).id for s, client in zip(spaces, clients, strict=True) for key in keys
    }
    assert len(set(jobs.values())) == len(jobs)
    for namespace, client in zip(spaces, clients, strict=True):
        assert [compile(client, "net", key=key).id for key in keys] == [jobs[namespace, key] for key in keys]
        error = fault(client, "Compile", **order(client, "net", key="x" * 129))
        assert (error.field, error.received) == ("idempotency_key", "129 characters")


def test_a_key_that_the_version_before_has_taken_is_found(guarded: Guarded) -> None:
    """It hashed keys of namespaces with the name in front, and those of no namespace as they are."""
    root, vision = guarded.client("root"), guarded.client("v", namespace="vision")
    before = sha256_hex(b"ingot job: vision:k")[:16]
    assert compile(vision, "net", key="k").id == before
    now = compile(root, "net", key="vision:k").id
    assert now != before  # the job of a namespace is none of those without
    other = sha256_hex(b"ingot job: speech:k")[:16]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "job_ids", lambda key, namespace: (other,))
        assert compile(root, "net", key="speech:k").id == other
    assert compile(root, "net", key="speech:k").id == other
    speech = guarded.client("s", namespace="speech")
    error = fault(speech, "Compile", **order(speech, "net", key="k"))
    assert (error.code, error.field, other in str(error)) == (ErrorCode.INVALID_ARGUMENT, "idempotency_key", False)


def test_who_orders_once_more_is_whose_job_it_is(guarded: Guarded) -> None:
    """Who published, in the log of changes, is who asked for it last; and so is whose quota counts."""
    ann, bob, root = (
        guarded.client(user, namespace="vision" if user != "root" else "") for user in ("ann", "bob", "root")
    )
    with editing(guarded.file) as held:
        held[0] = held[0].with_quota("vision", {"running_stages": 3})
    first = compile(ann, "net")
    ask(ann, "CancelJob", id=first.id)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    traced = (*bob.metadata, ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"))
    again = bob.stub.RetryJob(pb.RetryJobRequest(id=first.id), metadata=traced, timeout=10)
    assert (first.user, again.user, again.name) == ("ann", "bob", "net")
    keys = worker_keys(guarded.settings)
    connection = redis.Redis.from_url(guarded.settings.redis_url, decode_responses=True)
    store = JobStore(connection, 100, Seal(keys.sealer, keys.order_trust))
    record = store.get(again.id)
    assert (record.user, record.running_stages, trace in record.trace) == ("bob", 3, True)
    ask(root, "CancelJob", id=again.id)
    last = store.get(ask(root, "RetryJob", id=again.id).id)
    assert (last.user, last.running_stages, trace in last.trace) == ("root", 0, False)


def test_files_of_others_are_not_there(guarded: Guarded) -> None:
    """Who knows the digest of a file does not have it yet."""
    vision, speech, everyone = (
        guarded.client("v", namespace="vision"),
        guarded.client("s", namespace="speech"),
        guarded.client("root"),
    )
    sha256 = vision.upload(MODEL)
    assert ask(vision, "QueryUpload", sha256=sha256).complete
    for other in (speech, everyone):
        assert ask(other, "QueryUpload", sha256=sha256, size=len(MODEL)).received == 0
        source = pb.ModelSource(model_sha256=sha256)
        error = fault(other, "Compile", name="net", source=source, targets=["x86-64-v3"])
        assert error.code is ErrorCode.NOT_FOUND
        assert fault(other, "CheckModel", source=source).code is ErrorCode.NOT_FOUND
    speech.upload(MODEL)
    assert ask(speech, "QueryUpload", sha256=sha256).complete


def test_models_of_others_are_not_there(guarded: Guarded, tmp_path: Path) -> None:
    vision, speech = guarded.client("v", namespace="vision"), guarded.client("s", namespace="speech")
    everyone = guarded.client("root")
    platform = Platform(guarded.settings.home, guarded.settings.redis_url)
    for name in ("vision.net", "speech.net", "net"):
        assert platform.compile(name, {"name": name}, labels=("stable",)).version == 1
    for client, names in ((vision, ["net"]), (speech, ["net"]), (everyone, ["net", "speech.net", "vision.net"])):
        assert sorted(model.name for model in ask(client, "ListModels").models) == names
    assert ask(vision, "GetModel", name="net").name == "net"
    (version,) = ask(vision, "ListVersions", name="net").versions
    assert version.name == "net"
    error = fault(vision, "GetModel", name="other")
    assert (error.code, "net" in str(error)) == (ErrorCode.NOT_FOUND, False)
    assert "speech.net" in fault(everyone, "GetModel", name="other").expected
    assert ask(vision, "SetLabel", name="net", label="canary", version=1).name == "net"
    assert "canary" in ask(everyone, "GetModel", name="vision.net").labels
    assert "canary" not in ask(everyone, "GetModel", name="net").labels
    assert len(list(ask(vision, "DownloadArtifact", name="net"))) > 3


def test_errors_call_a_model_as_who_asks_calls_it(guarded: Guarded) -> None:
    vision, root = guarded.client("v", namespace="vision"), guarded.client("root")
    platform = Platform(guarded.settings.home, guarded.settings.redis_url)
    platform.compile("vision.net", {"name": "m"}, labels=("stable",))
    sent = {"source": pb.ModelSource(model_sha256=vision.upload(MODEL)), "targets": ["x86-64-v3"]}
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("GetModel", {"name": "other"}),
        ("ListVersions", {"name": "other"}),
        ("DownloadArtifact", {"name": "net", "label": "canary"}),
        ("SetLabel", {"name": "net", "label": "canary", "version": 7}),
        ("SetLabel", {"name": "net", "label": "stable", "version": 1, "etag": "5"}),
        ("DeleteLabel", {"name": "net", "label": "canary"}),
        ("DeleteVersion", {"name": "net", "version": 1}),
        ("DeleteModel", {"name": "net"}),
        ("GetModel", {"name": "bad 'name'\n"}),
        ("GetModel", {"name": "bad " * 100}),
        ("GetModel", {}),
        ("Compile", {"name": "bad name", **sent}),
    )
    for method, fields in asked:
        error = fault(vision, method, **fields)
        assert "vision" not in str(error), error
        assert fields.get("name", "")[:20].strip("\n").partition("'")[0] in str(error), error
    assert "'vision.other'" in str(fault(root, "GetModel", name="vision.other"))
    assert str(fault(vision, "GetModel", name="other")) == "no model 'other'; at field 'name'."


def test_errors_in_answers_call_a_model_as_who_asks_calls_it(guarded: Guarded) -> None:
    vision = guarded.client("v", namespace="vision")
    job, jobs = compile(vision, "net").id, JobStore(redis.Redis.from_url(guarded.settings.redis_url))
    error = IngotError(ErrorCode.CONFLICT, "label 'a' of model 'vision.net' was moved", node="vision.net (Relu)")
    jobs.update(job, state=JobState.FAILED, error=error)
    jobs.update_target(job, 0, state=JobState.FAILED, error=error)
    for told in (ask(vision, "GetJob", id=job), next(ask(vision, "WatchJob", id=job)).job):
        for found in (told.error, told.targets[0].error):
            assert (found.message, found.node) == ("label 'a' of model 'net' was moved", "vision.net (Relu)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no model 'a.net'.", "no model 'net'."),
        ("models/a.net/versions/1.json", "models/net/versions/1.json"),
        ("a.net and a.net.", "net and net."),
        ("a.network, a.net.x, a.net-2, b.a.net", "a.network, a.net.x, a.net-2, b.a.net"),
    ],
)
def test_a_name_is_replaced_where_it_is_whole(text: str, expected: str) -> None:
    assert Namespace("a").text(text, "a.net") == expected


def test_what_nobody_thought_of_is_refused_in_a_namespace(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    client = guarded.client("v", namespace="vision")
    for method in METHODS:
        own = namespaces.NAMED | namespaces.PREFIXED | namespaces.OF_JOB | namespaces.ANYWHERE
        is_known = method in own or method in namespaces.NARROWED
        denied = status(client, method, REQUESTS[method]()) is grpc.StatusCode.PERMISSION_DENIED
        assert denied != is_known, method
    monkeypatch.setattr(namespaces, "ANYWHERE", frozenset())
    assert status(client, "ListTargets", pb.ListTargetsRequest()) is grpc.StatusCode.PERMISSION_DENIED
    assert status(guarded.client("root"), "ListTargets", pb.ListTargetsRequest()) is grpc.StatusCode.OK


def test_a_namespace_holds_so_many_jobs(guarded: Guarded) -> None:
    with editing(guarded.file) as held:
        held[0] = held[0].with_quota("vision", {"jobs": 2})
    vision, speech = guarded.client("v", namespace="vision"), guarded.client("s", namespace="speech")
    first = compile(vision, "a")
    compile(vision, "b", b'{"b": 1}')
    source = pb.ModelSource(model_sha256=vision.upload(MODEL))
    error = fault(vision, "Compile", name="c", source=source, targets=["x86-64-v3"])
    assert (error.code, error.field, error.expected) == (ErrorCode.RESOURCE_EXHAUSTED, "jobs", "at most 2")
    for name in ("a", "b", "c"):
        compile(speech, name, json.dumps({"name": name}).encode())
    assert fault(vision, "Compile", name="bad name", source=source, targets=["x"]).code is ErrorCode.INVALID_ARGUMENT
    ask(vision, "CancelJob", id=first.id)
    assert compile(vision, "c").state == pb.JOB_STATE_QUEUED


def test_a_namespace_holds_so_many_bytes(guarded: Guarded) -> None:
    with editing(guarded.file) as held:
        held[0] = held[0].with_quota("vision", {"bytes": 100})
    vision, speech = guarded.client("v", namespace="vision"), guarded.client("s", namespace="speech")
    vision.upload(b"a" * 60)
    with pytest.raises(grpc.RpcError) as caught:
        vision.upload(b"b" * 60)
    error = attached_error(trailing(caught.value))
    assert error is not None
    assert (error.code, error.field) == (ErrorCode.LIMIT_EXCEEDED, "bytes")
    assert vision.upload(b"c" * 40)
    assert speech.upload(b"b" * 200)


def begin(client: Client, data: bytes, sent: int) -> None:
    """An upload that breaks off."""
    header = pb.UploadHeader(name="m", size=len(data), sha256=sha256_hex(data))
    requests = [pb.UploadModelRequest(header=header), pb.UploadModelRequest(chunk=data[:sent])]
    with pytest.raises(grpc.RpcError, match="ended early"):
        client.stub.UploadModel(iter(requests), metadata=client.metadata, timeout=10)


def test_uploads_under_way_count_as_what_they_will_be(guarded: Guarded) -> None:
    with editing(guarded.file) as held:
        held[0] = held[0].with_quota("vision", {"bytes": 100})
    vision, first = guarded.client("v", namespace="vision"), b"a" * 60
    begin(vision, first, 10)
    begin(vision, b"c" * 40, 1)
    with pytest.raises(grpc.RpcError, match="has no room"):
        vision.upload(b"b" * 60)
    assert ask(vision, "QueryUpload", sha256=sha256_hex(b"b" * 60), size=60).received == 0
    vision.upload(first, offset=10)
    under_way = guarded.settings.home / f"store/uploads/vision/{sha256_hex(b'c' * 40)}.40"
    with pytest.raises(grpc.RpcError, match="has no room"):
        vision.upload(b"d" * 40)
    os.utime(under_way, (time.time() - 3600,) * 2)  # nobody goes on with it: it gives way
    assert vision.upload(b"d" * 40)
    assert not under_way.exists()


def test_uploads_at_once_hold_no_more_than_one_after_another(guarded: Guarded) -> None:
    with editing(guarded.file) as held:
        held[0] = held[0].with_quota("vision", {"bytes": 100_000})
    vision = guarded.client("v", namespace="vision")

    def upload(number: int) -> bool:
        try:
            return bool(vision.upload(bytes([number]) * 60_000))
        except grpc.RpcError as error:
            if "has no room" not in str(error):
                raise
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(upload, range(16))) <= 1
    upload(99)  # there may be room, if each of them saw another one
    held_bytes = sum(path.stat().st_size for path in (guarded.settings.home / "store").rglob("vision/*"))
    assert held_bytes <= 100_000


def test_names() -> None:
    vision, everyone = Namespace("vision"), Namespace()
    assert vision.stored("a.b") == "vision.a.b"
    assert vision.shown("vision.vision.a") == "vision.a"
    assert [vision.holds(name) for name in ("vision.a", "vision", "vision-2.a", "a")] == [True, False, False, False]
    assert (everyone.stored("a.b"), everyone.shown("a.b"), everyone.holds("a.b")) == ("a.b", "a.b", True)


def test_a_namespace_runs_so_many_stages(guarded: Guarded) -> None:
    store = JobStore(redis.Redis.from_url(guarded.settings.redis_url, decode_responses=True))
    quota = StageQuota(store.redis)
    assert all(quota.take("", 1, f"j{n}:0") for n in range(3))
    assert all(quota.take("vision", 0, f"j{n}:0") for n in range(3))
    assert quota.take("vision", 2, "a:0")
    assert quota.take("vision", 2, "b:-1")
    assert quota.take("vision", 2, "a:0")  # its own, delivered twice
    assert not quota.take("vision", 2, "c:0")
    assert quota.take("speech", 2, "c:0")
    quota.give("vision", "b:-1")
    assert quota.take("vision", 2, "c:0")
    store.lease("c", 0, "token", 60)
    key = "ingot:namespace:vision:running"
    store.redis.zadd(key, {"a:0": 1.0, "c:0": 1.0})  # long ago: who holds no lease was lost
    assert quota.take("vision", 2, "d:0")
    assert not quota.take("vision", 2, "e:0")
    assert set(store.redis.zrange(key, 0, -1)) == {"c:0", "d:0"}


def test_stages_wait_for_others_of_their_namespace(tmp_path: Path) -> None:
    """In a worker with room for two; the limit is in what was ordered, so that the worker needs no file of tokens."""
    tokens = tmp_path / "tokens.json"
    with editing(tokens) as held:
        file = held[0].with_quota("vision", {"running_stages": 1})
        held[0], token = file.with_token(Principal("v", "vision"))
    with installation(tmp_path / "home", INGOT_API_TOKENS=str(tokens)) as running:
        running.start_server()
        running.start_worker()
        client = Client(running.address, (("authorization", f"Bearer {token}"),))
        jobs = [compile(client, name, json.dumps({"name": name, "seconds": 1.0}).encode()).id for name in ("a", "b")]
        most, store = 0, JobStore(redis.Redis.from_url(running.redis_url, decode_responses=True))

        def finished() -> bool:
            nonlocal most
            records = store.load(jobs)
            unfinished = [record for record in records if not record.state.finished]
            running = sum(record.leased + sum(target.leased for target in record.targets) for record in unfinished)
            most = max(most, running)
            return all(record.state is JobState.SUCCEEDED for record in records)

        wait_until(finished, 90)
        assert most == 1
