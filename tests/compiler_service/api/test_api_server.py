"""The server around the servicer: health, reflection, metrics, who may call, limits, stopping."""

from __future__ import annotations

import datetime
import ipaddress
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.parser import text_string_to_metric_families

from compiler_service.jobs.records import JobStage
from compiler_service.jobs.waiting.line import LINES
from compiler_service.server import RunningServer, start_server
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import make_parts
from ingot.channel import authorization, call
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.status import attached_error
from tests.services.installation import Client, Installation, installation, wait_until
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

pytestmark = pytest.mark.services


class RecordingQueue:
    """Keeps what was sent; nothing runs."""

    def __init__(self) -> None:
        self.sent: list[tuple[JobStage, str, int]] = []

    def send(self, stage: JobStage, job: str, target: int, kind: str = "") -> None:
        self.sent.append((stage, job, target))

    def waiting(self, kinds: Any) -> Any:
        return {(name, ""): [own[1:] for own in self.sent if LINES[own[0]] == name] for name in LINES.values()}


@pytest.fixture(name="settings")
def fixture_settings(tmp_path: Path) -> Iterator[CompilerSettings]:
    with redis_server() as url:
        yield CompilerSettings(
            redis_url=url, home=tmp_path, compiler_port=0, compiler_metrics_port=0, drain_seconds=5.0
        )


def start(settings: CompilerSettings) -> RunningServer:
    catalogue = ToyCompiler()
    return start_server(settings, catalogue, make_parts(settings, catalogue, RecordingQueue(), STAGE_COMMAND))


def detail(error: grpc.RpcError) -> pb.ErrorDetail:
    (attached,) = (m.value for m in error.trailing_metadata() if m.key == "ingot-error-bin")
    return pb.ErrorDetail.FromString(attached)


def submit(client: Client, text: str, **fields: Any) -> pb.Job:
    return client.compile({"name": text}, name=text, **fields)


def test_health_and_reflection(settings: CompilerSettings) -> None:
    running = start(settings)
    channel = grpc.insecure_channel(f"127.0.0.1:{running.port}")
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ("", "ingot.compiler.v1.CompilerService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:  # no other name means all of it, as operating.md says
        stub.Check(health_pb2.HealthCheckRequest(service="ingot.compiler.v1.Compiler"), timeout=5)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    database = ProtoReflectionDescriptorDatabase(channel)
    assert "ingot.compiler.v1.CompilerService" in database.get_services()
    file = database.FindFileContainingSymbol("ingot.compiler.v1.CompilerService")
    assert "WatchJob" in [method.name for method in file.service[0].method]
    assert database.FindFileContainingSymbol("grpc.health.v1.Health").package == "grpc.health.v1"
    running.stop(1)


def scrape(running: RunningServer) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {
        sample.name + "".join(f"|{value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_come_from_the_job_store(settings: CompilerSettings) -> None:
    running = start(settings)
    client = Client(f"127.0.0.1:{running.port}")
    before = scrape(running)
    assert before["ingot_compiler_jobs|queued"] == 0
    job = submit(client, "a")
    time.sleep(0.05)
    after = scrape(running)
    assert after["ingot_compiler_queue_up"] == 1
    assert after["ingot_compiler_jobs|queued"] == 1
    assert after["ingot_compiler_queue_age_seconds"] > 0
    assert after["ingot_compiler_cache_total|miss"] == 1
    assert after["ingot_compiler_calls_total|OK|Compile"] == 1
    assert after["ingot_compiler_bytes_total|in"] > 0
    assert [after[f"ingot_compiler_{name}"] for name in ("uploads", "watchers", "workers", "stuck")] == [0] * 4
    assert after["ingot_compiler_up|redis"] == after["ingot_compiler_up|store"] == 1
    stream = client.stub.WatchJob(pb.WatchJobRequest(id=job.id))
    next(stream)
    assert scrape(running)["ingot_compiler_watchers"] == 1
    client.stub.CancelJob(pb.CancelJobRequest(id=job.id))
    last = scrape(running)
    assert last["ingot_compiler_jobs|queued"] == 0
    assert last["ingot_compiler_targets_finished_total|CANCELLED|cancelled|x86-64-v3"] == 1
    with pytest.raises(grpc.RpcError):
        client.stub.GetJob(pb.GetJobRequest(id="nope"))
    assert scrape(running)["ingot_compiler_calls_total|NOT_FOUND|GetJob"] == 1
    running.stop(1)


def test_a_full_queue_refuses(settings: CompilerSettings) -> None:
    running = start(replace(settings, max_jobs=2))
    client = Client(f"127.0.0.1:{running.port}")
    for name in ("a", "b"):
        submit(client, name)
    with pytest.raises(grpc.RpcError) as caught:
        submit(client, "c")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(caught.value).blame == pb.BLAME_SERVICE
    running.stop(1)


def test_too_many_watchers(settings: CompilerSettings) -> None:
    running = start(replace(settings, max_watchers=2))
    client = Client(f"127.0.0.1:{running.port}")
    job = submit(client, "a")
    streams = [client.stub.WatchJob(pb.WatchJobRequest(id=job.id)) for _ in range(2)]
    for stream in streams:
        next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        next(client.stub.WatchJob(pb.WatchJobRequest(id=job.id)))
    assert detail(caught.value).code == "RESOURCE_EXHAUSTED"
    streams[0].cancel()

    def watches() -> bool:
        try:
            return bool(next(client.stub.WatchJob(pb.WatchJobRequest(id=job.id))))
        except grpc.RpcError:
            return False

    wait_until(watches)  # a client that went away frees its place
    running.stop(1)


def test_the_token_is_needed_but_for_health(settings: CompilerSettings) -> None:
    running = start(replace(settings, token="s3cret"))
    address = f"127.0.0.1:{running.port}"
    for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "s3cret"),)):
        client = Client(address, metadata)
        with pytest.raises(grpc.RpcError) as caught:
            client.stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as caught:
            client.upload(b"data")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as caught:
            list(client.stub.WatchJob(pb.WatchJobRequest(id="x"), metadata=metadata))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    good = (("authorization", "Bearer s3cret"),)
    assert Client(address, good).upload(b"data")
    stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(address))
    assert stub.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
    running.stop(1)


def test_errors_arrive_whole_or_shortened(settings: CompilerSettings) -> None:
    running = start(replace(settings, token="s3cret"))
    address = f"127.0.0.1:{running.port}"
    for token, id, status, expected in (
        ("s3cret", "job-x", grpc.StatusCode.NOT_FOUND, ErrorCode.NOT_FOUND),
        ("s3cret", "é" * 20_000, grpc.StatusCode.NOT_FOUND, ErrorCode.NOT_FOUND),
        ("", "job-x", grpc.StatusCode.UNAUTHENTICATED, ErrorCode.UNAUTHENTICATED),
    ):
        stub, metadata = Client(address).stub, authorization(token)
        with pytest.raises(IngotError) as caught:
            call(
                address,
                partial(stub.GetJob, pb.GetJobRequest(id=id), metadata=metadata),
            )
        assert caught.value.code is expected
        cause: Any = caught.value.__cause__
        assert cause.code() is status
        assert attached_error(cause.trailing_metadata()) is not None
    running.stop(1)


def test_an_address_that_is_taken_is_named(settings: CompilerSettings) -> None:
    running = start(settings)
    for name, port in (("compiler_port", running.port), ("compiler_metrics_port", running.metrics_port)):
        taken: dict[str, Any] = {name: port}
        with pytest.raises(IngotError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
            start(replace(settings, **taken))
        assert caught.value.code is ErrorCode.UNAVAILABLE
        assert f"INGOT_{name.upper()}" in caught.value.remedy
    running.stop(1)


def test_tls(settings: CompilerSettings, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    running = start(replace(settings, tls_certificate=str(certificate), tls_key=str(key)))
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    stub = health_pb2_grpc.HealthStub(grpc.secure_channel(f"127.0.0.1:{running.port}", credentials))
    assert stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError):
        Client(f"127.0.0.1:{running.port}").stub.ListModels(pb.ListModelsRequest(), timeout=5)
    running.stop(1)


def self_signed(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (directory / "cert.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "key.pem").write_bytes(private)
    return directory / "cert.pem", directory / "key.pem"


def test_unreadable_tls_files_and_taken_ports(settings: CompilerSettings) -> None:
    with pytest.raises(IngotError, match="TLS"):
        start(replace(settings, tls_certificate="/nothing", tls_key="/nothing"))
    running = start(settings)
    with pytest.raises(IngotError, match="cannot listen"):
        start(replace(settings, compiler_port=running.port))
    running.stop(1)


def test_without_redis_the_service_says_so(settings: CompilerSettings) -> None:
    running = start(replace(settings, redis_url="unix:///nothing/here.sock"))
    client = Client(f"127.0.0.1:{running.port}")
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.GetJob(pb.GetJobRequest(id="x"))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert detail(caught.value).code == "UNAVAILABLE"
    assert client.upload(b"still works")
    assert list(client.stub.ListModels(pb.ListModelsRequest()).models) == []
    assert scrape(running)["ingot_compiler_queue_up"] == 0
    running.stop(1)


def test_stopping_ends_streams_and_lets_calls_finish(settings: CompilerSettings) -> None:
    running = start(settings)
    address = f"127.0.0.1:{running.port}"
    client = Client(address)
    job = submit(client, "a")
    stream = client.stub.WatchJob(pb.WatchJobRequest(id=job.id))
    next(stream)
    gate = threading.Event()

    def slow() -> Iterator[pb.UploadModelRequest]:
        header = pb.UploadHeader(
            name="m", size=3, sha256="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        )
        yield pb.UploadModelRequest(header=header)
        gate.wait(10)
        yield pb.UploadModelRequest(chunk=b"abc")

    upload = Client(address).stub.UploadModel.future(slow())
    time.sleep(0.3)
    stopper = threading.Thread(target=running.stop, args=(10,))
    started = time.monotonic()
    stopper.start()
    list(stream)
    gate.set()
    assert upload.result(timeout=10).size == 3
    stopper.join()
    assert time.monotonic() - started < 8
    with pytest.raises(grpc.RpcError):
        Client(address).stub.ListModels(pb.ListModelsRequest(), timeout=2)


def test_settings_name_the_malformed_variable() -> None:
    given = CompilerSettings.from_environment({"INGOT_WORKERS": "4", "INGOT_HOME": "/x", "INGOT_JOB_SECONDS": "1.5"})
    assert (given.workers, given.home, given.job_seconds) == (4, Path("/x"), 1.5)
    assert given.store == "file:///x/store"
    with pytest.raises(IngotError, match="INGOT_WORKERS"):
        CompilerSettings.from_environment({"INGOT_WORKERS": "many"})


def test_the_process_stops_on_sigterm(tmp_path: Path) -> None:
    with installation(tmp_path / "home") as running:
        process = running.start_server()
        running.client().upload(b"data")
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
        assert time.monotonic() - started < 5
        assert json.loads((running.home / "ready.json").read_text())["metrics"] == running.metrics
        assert isinstance(running, Installation)
