"""The client against a server that is killed and comes back: uploads, watches and waits go on."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from ingot import Client
from ingot.records import Source
from ingot.resuming import OutagePatience
from ingot.upload import CHUNK_BYTES
from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import Installation, installation

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with installation(tmp_path_factory.mktemp("home"), INGOT_COMPILER_PORT=str(port)) as found:
        found.start_server()
        found.start_worker()
        yield found


class Restart:
    """Kills the server, without a word to anybody, and starts it again on the same port."""

    def __init__(self, running: Installation) -> None:
        self._running = running
        self._thread = threading.Thread(target=self._again)
        self.times = 0

    def __call__(self) -> None:
        server = self._running.processes[-1] if self.times else self._running.processes[0]
        server.kill()
        server.wait()
        self.times += 1
        self._thread = threading.Thread(target=self._again)
        self._thread.start()

    def _again(self) -> None:
        time.sleep(0.5)
        self._running.start_server()

    def done(self) -> None:
        self._thread.join()


@pytest.fixture
def restart(running: Installation) -> Iterator[Restart]:
    servers = [p for p in running.processes if "toy_server.py" in str(p.args) and p.poll() is None]
    running.processes.remove(servers[-1])
    running.processes.insert(0, servers[-1])
    found = Restart(running)
    yield found
    found.done()


def slow_model(seconds: float, name: str) -> bytes:
    return json.dumps({"name": name, "seconds": seconds, "steps": 10}).encode()


def test_an_upload_goes_on_where_it_was(running: Installation, restart: Restart) -> None:
    data = random.Random(1).randbytes(24 * CHUNK_BYTES)
    sent: list[int] = []

    def progress(name: str, done: int, total: int) -> None:
        sent.append(done)
        if done >= 8 * CHUNK_BYTES and not restart.times:
            restart()

    with Client(running.address) as client:
        source = client.upload(data, progress=progress)
        assert source.model_sha256 == sha256_hex(data)
        assert client._stub.QueryUpload(pb.QueryUploadRequest(sha256=source.model_sha256)).complete
    assert restart.times == 1
    assert sent[-1] == len(data)


def test_a_watch_goes_on_and_tells_nothing_twice(running: Installation, restart: Restart) -> None:
    with Client(running.address) as client:
        job = client.compile(slow_model(2.0, "watched"), "watched", ["x86-64-v3"])
        events = []
        for event in client.watch(job.id):
            events.append(event)
            if event.progress is not None and not restart.times:
                restart()
    assert restart.times == 1
    assert events[-1].job is not None
    assert events[-1].job.state == "SUCCEEDED"
    told = [event.sequence for event in events if event.sequence]
    assert len(told) == len(set(told))
    assert told == sorted(told, key=lambda text: tuple(map(int, text.split("-"))))


def test_a_wait_outlives_a_restart_that_it_begins_in(running: Installation, restart: Restart) -> None:
    with Client(running.address) as client:
        job = client.compile(slow_model(2.0, "waited"), "waited", ["x86-64-v3"])
    restart()
    with Client(running.address) as another:
        assert another.wait(job.id, timeout=60).state == "SUCCEEDED"


def test_a_deadline_ends_a_wait_and_not_the_job(running: Installation) -> None:
    with Client(running.address) as client:
        job = client.compile(slow_model(2.0, "late"), "late", ["x86-64-v3"])
        for follow in (lambda: client.wait(job.id, timeout=0.5), lambda: list(client.watch(job.id, timeout=0.5))):
            assert took(follow) < 2.0
        assert client.wait(job.id, timeout=60).state == "SUCCEEDED"


def took(follow: Callable[[], object]) -> float:
    start = time.monotonic()
    with pytest.raises(IngotError, match="in time") as caught:
        follow()
    assert caught.value.code is ErrorCode.DEADLINE_EXCEEDED
    return time.monotonic() - start


def test_one_label_may_be_a_string_and_lists_may_not(running: Installation) -> None:
    with Client(running.address) as client:
        job = client.wait(client.compile(slow_model(0.0, "l"), "labelled", ["x86-64-v3"], labels="stable").id, 60)
        assert job.labels == ("stable",)
        assert dict(client.labels("labelled")) == {"stable": 1}
        for wrong in ("x86-64-v3", 7, [7], None, {"x86-64-v3": 1}):
            with pytest.raises(IngotError, match="targets is a list of names"):
                client.compile(slow_model(0.0, "l"), "labelled", wrong)  # type: ignore[arg-type]
        with pytest.raises(IngotError, match="labels is a list of names"):
            client.compile(slow_model(0.0, "l"), "labelled", ["x86-64-v3"], labels=[b"stable"])  # type: ignore[list-item]


def test_a_service_that_nobody_ever_saw_is_given_up_soon(tmp_path: Path) -> None:
    with Client("127.0.0.1:1") as client:
        for follow in (lambda: client.wait("1"), lambda: list(client.watch("1")), lambda: client.upload(b"abc")):
            start = time.monotonic()
            with pytest.raises(IngotError, match="cannot be reached"):
                follow()
            assert time.monotonic() - start < 5.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(("usual", "own"), [(1.0, None), (60.0, 1.0)])
def test_an_order_is_repeated_until_the_time_of_its_call_is_up(usual: float, own: float | None) -> None:
    """And not for the minutes that an upload has."""
    port = free_port()
    with Client(f"127.0.0.1:{port}", timeout=usual) as client:
        client._is_known = True
        start = time.monotonic()
        with pytest.raises(IngotError, match=r"cannot be reached|in time"):
            client.compile(Source("ab" * 32), "m", ["x86-64-v3"], timeout=own)
        assert time.monotonic() - start < 10.0


def test_an_order_with_no_time_to_wait_for_is_refused_before_anything_is_sent() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(IngotError) as caught:
        client.compile(b"no model", "m", ["x86-64-v3"], timeout=-1.0)
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "timeout")


def test_an_order_may_outlast_the_time_that_other_calls_have() -> None:
    port = free_port()
    with Client(f"127.0.0.1:{port}", timeout=0.2) as client:
        client._is_known = True
        start = time.monotonic()
        with pytest.raises(IngotError, match=r"cannot be reached|in time"):
            client.compile(Source("ab" * 32), "m", ["x86-64-v3"], timeout=2.0)
        assert time.monotonic() - start >= 1.5


def test_a_client_that_begins_when_the_service_is_back_reaches_it() -> None:
    """Another one of the same process, which found nobody, may pause as long as it likes."""
    port = free_port()
    with Client(f"127.0.0.1:{port}") as waiting:
        for _ in range(40):
            with pytest.raises(IngotError, match="cannot be reached"):
                waiting.jobs()
            time.sleep(0.1)  # so that pauses have grown
        server = grpc.server(ThreadPoolExecutor(1))
        assert server.add_insecure_port(f"127.0.0.1:{port}") == port
        server.start()
        try:
            with Client(f"127.0.0.1:{port}") as fresh, pytest.raises(IngotError, match=r"[Mm]ethod not found"):
                fresh.jobs()
        finally:
            server.stop(None)


class Stopping:
    """A service that stops, as servers do that are told to: streams end as if all had been said."""

    def __init__(self, streams: list[list[pb.JobEvent]], states: list[str]) -> None:
        self.asked: list[str] = []
        self._streams, self._states = streams, states

    def WatchJob(self, request: pb.WatchJobRequest, timeout: float | None, metadata: object) -> Stream:
        self.asked.append(request.after)
        return Stream(self._streams.pop(0))

    def GetJob(self, request: pb.GetJobRequest, timeout: float, metadata: object) -> pb.Job:
        return pb.Job(id=request.id, state=self._states.pop(0))


def test_a_crowd_of_watchers_is_waited_for_and_a_quota_is_not() -> None:
    busy = IngotError(ErrorCode.RESOURCE_EXHAUSTED, "there are too many watchers")
    OutagePatience(known=True).wait(busy, crowd=True)
    with pytest.raises(IngotError, match="too many"):
        OutagePatience(known=True).wait(busy)


class Stream(list[pb.JobEvent]):
    def cancel(self) -> None:
        pass


def test_what_a_job_did_while_the_server_stopped_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    running, done = pb.Job(id="1", state="JOB_STATE_RUNNING"), pb.Job(id="1", state="JOB_STATE_SUCCEEDED")
    first = [pb.JobEvent(job=running), pb.JobEvent(sequence="1-0", job=running)]
    service = Stopping(
        [first, [], [pb.JobEvent(sequence="2-0", job=done)]], ["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]
    )
    with Client("127.0.0.1:1") as client:
        monkeypatch.setattr(client, "_stub", service)
        told = [event.sequence for event in client.watch("1")]
    assert told == ["", "1-0", "2-0"]
    assert service.asked == ["", "1-0", "1-0"]
