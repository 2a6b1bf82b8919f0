"""Clients take messages of 4 MiB: lists of big things come in pages that fit, and all of them come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from compiler_service.server import RunningServer, start_server
from compiler_service.settings import CompilerSettings
from compiler_service.wiring import make_parts
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.compiler_service.api.test_api_jobs import error_of
from tests.services.installation import Client
from tests.services.redis_server import redis_server
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

pytestmark = pytest.mark.services
MOST_BYTES = 4 << 20
"""What gRPC takes where nobody says otherwise."""


class Nobody:
    """Nothing is compiled."""

    def send(self, stage: Any, job: str, target: int, kind: str = "") -> None:
        pass

    def waiting(self, kinds: Any) -> Any:
        return {}


@pytest.fixture(name="running")
def fixture_running(tmp_path: Path) -> Iterator[RunningServer]:
    with redis_server() as url:
        settings = CompilerSettings(redis_url=url, home=tmp_path, compiler_port=0, compiler_metrics_port=-1)
        running = start_server(settings, ToyCompiler(), make_parts(settings, ToyCompiler(), Nobody(), STAGE_COMMAND))
        yield running
        running.stop(1)


def pages(ask: Callable[[str], Any], field: str) -> Iterator[list[Any]]:
    token = ""
    while True:
        page = ask(token)
        assert page.ByteSize() < MOST_BYTES
        yield list(getattr(page, field))
        token = page.next_page_token
        if not token:
            return


def test_jobs_of_many_long_targets_are_listed(running: RunningServer) -> None:
    client = Client(f"127.0.0.1:{running.port}")
    targets = [f"x86-64-v3 {' ' * 3900} -cores={cores}" for cores in range(1, 65)]
    made = [client.compile({"name": f"m{number}"}, f"m{number}", targets).id for number in range(30)]
    found = list(pages(lambda token: client.stub.ListJobs(pb.ListJobsRequest(page_token=token)), "jobs"))
    assert [job.id for page in found for job in page] == made[::-1]
    assert len(found) > 1
    assert all(found), "a page without anything, and a client that asks again and again"


def refused(ask: Callable[[], Any]) -> pb.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        ask()
    return error_of(caught)


def test_an_order_that_no_answer_would_hold_is_refused(running: RunningServer) -> None:
    client = Client(f"127.0.0.1:{running.port}")
    sha256 = client.upload(b"{}")
    value = pb.OptionValue(string_value="x" * (3 << 20))
    found = refused(lambda: client.compile({}, "long", options={"tune": value}))
    assert (found.code, found.blame) == ("LIMIT_EXCEEDED", pb.BLAME_USER)
    source = pb.ModelSource(model_sha256=sha256, external_data={f"weights/{n}": sha256 for n in range(20_000)})
    found = refused(
        lambda: client.stub.Compile(pb.CompileRequest(name="many", source=source, targets=["x86-64-v3"]), timeout=30)
    )
    assert found.code == "LIMIT_EXCEEDED"
    assert not client.stub.ListJobs(pb.ListJobsRequest()).jobs


def test_an_order_that_moves_very_many_labels_is_refused(running: RunningServer) -> None:
    client = Client(f"127.0.0.1:{running.port}")
    found = refused(lambda: client.compile({}, "labelled", labels=[f"l{n}" for n in range(65)]))
    assert (found.code, found.field, found.received) == ("INVALID_ARGUMENT", "labels", "65")
    assert client.compile({}, "labelled", labels=[f"l{n}" for n in range(64)]).id
