"""The compiler service: uploads that stand still, odd bytes, and the port of its metrics."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from compiler_service.api.permissions import SERVICE
from compiler_service.server import RunningServer, start_server
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import make_parts
from shared_ir.digest import sha256_hex
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from tests.peers import fuzzer
from tests.services.installation import wait_until
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

pytestmark = pytest.mark.services
UPLOADS = 70
METHODS = {
    method.name: method
    for method in pb.DESCRIPTOR.services_by_name["CompilerService"].methods
    if method.name != "CheckModel"
}


class NoQueue:
    def send(self, stage: Any, job: str, target: int, kind: str = "") -> None:
        """Nothing runs."""

    def waiting(self, kinds: Any) -> Any:
        return {}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home: Path = tmp_path_factory.mktemp("home")
    with redis_server() as url:
        settings = CompilerSettings(
            redis_url=url, home=home, compiler_port=0, compiler_metrics_port=0, drain_seconds=2.0
        )
        catalogue = ToyCompiler()
        server = start_server(settings, catalogue, make_parts(settings, catalogue, NoQueue(), STAGE_COMMAND))
        yield server
        server.stop(1.0)


def asks(running: RunningServer) -> float:
    """Seconds that a health check and a question over a new connection take."""
    begin = time.monotonic()
    with grpc.insecure_channel(f"127.0.0.1:{running.port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5).status
        assert status == health_pb2.HealthCheckResponse.SERVING
        assert compiler_pb2_grpc.CompilerServiceStub(channel).GetCapabilities(pb.GetCapabilitiesRequest(), timeout=5)
    return time.monotonic() - begin


@pytest.mark.parametrize("name", ["UploadModel", "WatchJob", "GetJob"])
def test_calls_that_say_nothing(running: RunningServer, name: str) -> None:
    with fuzzer.unfinished(running.port, f"/{SERVICE}/{name}", UPLOADS):
        time.sleep(0.3)
        for _ in range(3):
            assert asks(running) < 2.0


def test_uploads_that_stand_still_give_way(running: RunningServer) -> None:
    header = pb.UploadModelRequest(header=pb.UploadHeader(name="m", size=100, sha256="0" * 64))
    with fuzzer.unfinished(running.port, f"/{SERVICE}/UploadModel", UPLOADS, [header.SerializeToString()]):
        time.sleep(0.3)
        with grpc.insecure_channel(f"127.0.0.1:{running.port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            upload = compiler_pb2_grpc.CompilerServiceStub(channel).UploadModel
            with pytest.raises(grpc.RpcError) as caught:  # it is answered: what came is not what was declared
                upload(
                    iter(
                        [
                            pb.UploadModelRequest(header=pb.UploadHeader(name="n", size=3, sha256="1" * 64)),
                            pb.UploadModelRequest(chunk=b"abc"),
                        ]
                    ),
                    timeout=5,
                )
            assert caught.value.code() is grpc.StatusCode.DATA_LOSS


def test_models_that_are_looked_at_leave_room_for_questions(running: RunningServer) -> None:
    """Each takes a child, and as long as its model wants; one client asks for many at once."""
    with grpc.insecure_channel(f"127.0.0.1:{running.port}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = compiler_pb2_grpc.CompilerServiceStub(channel)
        source = pb.ModelSource(model_sha256=_uploaded(stub, {"check_seconds": 3.0}))
        checks = [stub.CheckModel.future(pb.CheckModelRequest(source=source), timeout=60) for _ in range(80)]
        time.sleep(0.5)
        for _ in range(5):
            assert asks(running) < 2.0
        for check in checks:
            check.cancel()
    wait_until(lambda: not running.server._calls, 20)


def _uploaded(stub: Any, model: Any) -> str:
    data = json.dumps(model).encode()
    header = pb.UploadHeader(name="m", size=len(data), sha256=sha256_hex(data))
    parts = [pb.UploadModelRequest(header=header), pb.UploadModelRequest(chunk=data)]
    return str(stub.UploadModel(iter(parts), timeout=10).sha256)


def test_uploads_of_drops_give_way(running: RunningServer) -> None:
    """A byte now and then keeps a thread as well as silence does, for as long as there are bytes."""
    over = threading.Event()

    def drops(number: int) -> Iterator[pb.UploadModelRequest]:
        yield pb.UploadModelRequest(header=pb.UploadHeader(name="m", size=10_000, sha256=f"{number:064x}"))
        while not over.wait(0.3):
            yield pb.UploadModelRequest(chunk=b"x")

    options = [("grpc.use_local_subchannel_pool", 1)]
    address = f"127.0.0.1:{running.port}"
    with grpc.insecure_channel(address, options) as channel, grpc.insecure_channel(address, options) as other:
        stub: Any = compiler_pb2_grpc.CompilerServiceStub(channel)
        crowd = [stub.UploadModel.future(drops(number), timeout=60) for number in range(UPLOADS)]
        time.sleep(1.5)
        try:
            begin = time.monotonic()
            _uploaded(compiler_pb2_grpc.CompilerServiceStub(other), {"name": "whole"})
            assert time.monotonic() - begin < 5.0
        finally:
            over.set()
        for each in crowd:
            each.cancel()
    wait_until(lambda: not running.server._calls, 20)


def test_health_is_watched_in_a_crowd(running: RunningServer) -> None:
    request, options = health_pb2.HealthCheckRequest(), [("grpc.use_local_subchannel_pool", 1)]
    address = f"127.0.0.1:{running.port}"
    with grpc.insecure_channel(address, options) as channel, grpc.insecure_channel(address, options) as other:
        crowd = [health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60) for _ in range(200)]
        assert next(crowd[0]).status == health_pb2.HealthCheckResponse.SERVING
        mine = health_pb2_grpc.HealthStub(other).Watch(request, timeout=5)
        assert next(mine).status == health_pb2.HealthCheckResponse.SERVING
        for each in (mine, *crowd):
            each.cancel()


@pytest.mark.parametrize("seed", range(3))
def test_odd_bytes_are_invalid_arguments(running: RunningServer, seed: int) -> None:
    source, found = random.Random(seed), fuzzer.Findings()
    with fuzzer.log_lines() as lines, grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        for _ in range(100):
            method = source.choice(list(METHODS.values()))
            sent = source.randbytes(source.choice((0, 1, 3, 40, 5000)))
            fuzzer.check_grpc(channel, f"{SERVICE}/{method.name}", sent, lines, found)
    assert not found.faults, "\n".join(found.faults)


def test_the_port_of_metrics(running: RunningServer) -> None:
    for head, status in (
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n", 404),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n", 404),
    ):
        ((found, body),) = fuzzer.answers(fuzzer.exchange(running.metrics_port, f"{head}\r\n".encode()))
        assert found == status
        assert found == 200 or json.loads(body)["code"]
