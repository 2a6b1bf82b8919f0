"""Servers of one object store: an upload that one of them began is finished at another, whatever became of the first."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import ingot
from shared_ir.digest import sha256_hex
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.storage.protocol import ObjectStore
from shared_ir.storage.store import open_store
from tests.services.installation import Client, Installation, installation, wait_until
from tests.services.s3_server import s3_server

pytestmark = pytest.mark.services
MEGABYTE = 1 << 20
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


class Replicas:
    """Two servers, ``first`` and ``second``, of one store and one Redis."""

    def __init__(self, running: Installation, store: ObjectStore) -> None:
        self.store = store
        self._running = running
        self.processes: list[subprocess.Popen[bytes]] = []
        self.addresses: list[str] = []

    def start(self) -> None:
        """Those that do not run."""
        alive = [own for own in zip(self.processes, self.addresses, strict=True) if own[0].poll() is None]
        while len(alive) < 2:
            alive.append((self._running.start_server(), self._running.address))
        self.processes, self.addresses = [list(own) for own in zip(*alive, strict=True)]

    def kill_first(self) -> None:
        self.processes[0].kill()
        self.processes[0].wait()

    def pause_second(self) -> None:
        """It takes connections, and answers none: a client that would have either goes to the first."""
        self.processes[1].send_signal(signal.SIGSTOP)

    def resume_second(self) -> None:
        self.processes[1].send_signal(signal.SIGCONT)

    def memory(self) -> float:
        """Most megabytes that the second has ever had."""
        status = Path(f"/proc/{self.processes[1].pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


@pytest.fixture(name="running", params=["file", "s3"], scope="module")
def fixture_running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    home = tmp_path_factory.mktemp("home")
    if request.param == "file":
        with installation(home) as running:
            yield Replicas(running, open_store(str(home / "store")))
        return
    with s3_server("models") as url, pytest.MonkeyPatch.context() as patch:
        settings = {**KEYS, "AWS_ENDPOINT_URL": url}
        for name, value in settings.items():
            patch.setenv(name, value)
        with installation(home, INGOT_STORE_URL="s3://models/all", **settings) as running:
            yield Replicas(running, open_store("s3://models/all", home / "cache"))


@pytest.fixture(name="replicas")
def fixture_replicas(running: Replicas) -> Iterator[Replicas]:
    running.start()
    yield running
    running.resume_second()


def requests(data: bytes, offset: int) -> Iterator[pb.UploadModelRequest]:
    header = pb.UploadHeader(name="weights", size=len(data), sha256=sha256_hex(data), offset=offset)
    yield pb.UploadModelRequest(header=header)
    for start in range(offset, len(data), MEGABYTE):
        yield pb.UploadModelRequest(chunk=data[start : start + MEGABYTE])


def test_one_begins_and_the_other_finishes(replicas: Replicas) -> None:
    data = random.Random(3).randbytes(19 * MEGABYTE + 77)
    query = pb.QueryUploadRequest(sha256=sha256_hex(data), size=len(data))
    first, second = (Client(address) for address in replicas.addresses)
    stop = threading.Event()

    def half() -> Iterator[pb.UploadModelRequest]:
        for number, request in enumerate(requests(data, 0)):
            if number == 13:
                stop.wait(30)
            yield request

    call = first.stub.UploadModel.future(half())
    wait_until(lambda: second.stub.QueryUpload(query).received >= 10 * MEGABYTE)
    replicas.kill_first()
    stop.set()
    with pytest.raises(grpc.RpcError):
        call.result()
    held = second.stub.QueryUpload(query)
    assert (10 * MEGABYTE <= held.received <= 12 * MEGABYTE, held.complete) == (True, False)
    assert second.stub.UploadModel(requests(data, held.received), timeout=30).size == len(data)
    assert second.stub.QueryUpload(query).complete
    assert replicas.store.get(f"sources/{query.sha256}") == data
    assert list(replicas.store.keys("uploads")) == []


def test_the_client_goes_on_at_the_other(replicas: Replicas) -> None:
    """By itself; and no server ever has more of the file in memory than some chunks."""
    data, afterwards = random.Random(4).randbytes(110 * MEGABYTE), list[int]()

    def progress(name: str, done: int, total: int) -> None:
        if total == len(data) and replicas.processes[0].poll() is not None:
            afterwards.append(done)
        elif done >= 40 * MEGABYTE:
            replicas.kill_first()
            replicas.resume_second()

    before = replicas.memory()
    replicas.pause_second()
    with ingot.Client(f"ipv4:{','.join(replicas.addresses)}") as client:
        source = client.upload(b"a model", {"weights": data}, progress)
    assert min(afterwards) > 20 * MEGABYTE
    assert max(afterwards) == len(data)
    key = f"sources/{source.external_data['weights']}"
    assert replicas.store.size(key) == len(data)
    assert sum(1 for _ in replicas.store.keys("uploads")) == 0
    assert replicas.memory() - before < 90
    with ingot.Client(replicas.addresses[1]) as client:
        assert client.upload(b"a model", {"weights": data}) == source
