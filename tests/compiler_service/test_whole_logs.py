"""Where logs are JSON every line of every process is: whatever ends, fails or is away, and whoever writes."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2_grpc
from shared_ir.service_kit.telemetry.fields import FIELDS
from tests.services import odd_things
from tests.services.certificates import pair
from tests.services.installation import HERE, ROOT, Client, Installation, wait_until
from tests.services.redis_server import OwnRedis

pytestmark = [pytest.mark.services, pytest.mark.slow]
ALWAYS = {"time", "level", "process", "pid", "logger", "message", *FIELDS}


@contextmanager
def installed(home: Path, **environment: str) -> Iterator[tuple[Installation, OwnRedis]]:
    """With TLS, processes that may do odd things, and nothing of this process's environment."""
    customised = home / "customised"
    customised.mkdir(parents=True)
    shutil.copy(odd_things.__file__, customised / "sitecustomize.py")
    certificate, key = pair(home, "server")
    redis = OwnRedis(home)
    tls = {"TLS_CERTIFICATE": str(certificate), "TLS_KEY": str(key)}
    settings = {
        "PATH": "/usr/bin:/bin",
        "ODD_THINGS": "odd",
        "PYTHONPATH": f"{customised}:{ROOT}",
        "PYTHONFAULTHANDLER": "1",
        "INGOT_REDIS_URL": redis.url,
        "INGOT_HOME": str(home),
        "INGOT_COMPILER_PORT": "0",
        "INGOT_COMPILER_METRICS_PORT": "0",
        "INGOT_LEASE_SECONDS": "2",
        "INGOT_RUNTIME_GRPC_ADDRESS": "127.0.0.1:0",
        "INGOT_RUNTIME_HTTP_ADDRESS": "",
        "INGOT_RUNTIME_METRICS_ADDRESS": "",
        "INGOT_RUNTIME_ADDRESS_FILE": str(home / "runtime.json"),
        **{f"INGOT_{name}": value for name, value in tls.items()},
        **{f"INGOT_RUNTIME_{name}": value for name, value in tls.items()},
    }
    running = Installation(home, redis.url, settings | environment)
    try:
        yield running, redis
    finally:
        running.stop()
        redis.kill()


def lines(running: Installation, name: str) -> list[dict[str, Any]]:
    """Of the log of a process, each of which is JSON with the fields that all have."""
    found = []
    for line in (running.home / f"{name}.log").read_text().splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            pytest.fail(f"{name} wrote what is no JSON: {line!r}")
        assert set(document) >= ALWAYS, line
        found.append(document)
    assert found, name
    return found


def said(running: Installation, name: str, text: str) -> bool:
    """Whether somebody has said it; a line that is being written is read the next time."""
    path = running.home / f"{name}.log"
    return path.exists() and text in path.read_text()


def secure_client(running: Installation) -> Client:
    credentials = grpc.ssl_channel_credentials((running.home / "server.crt").read_bytes())
    client = Client(running.address)
    client.channel = grpc.secure_channel(running.address, credentials, [("grpc.ssl_target_name_override", "localhost")])
    client.stub = compiler_pb2_grpc.CompilerServiceStub(client.channel)
    return client


def knock_wrongly(address: str) -> None:
    """A client without TLS, and one that trusts somebody else."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(OSError):
            plain.recv(100)
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
        ssl.create_default_context().wrap_socket(connection, server_hostname="localhost")


def start_all(running: Installation) -> dict[str, subprocess.Popen[bytes]]:
    api = running.start_server()
    worker = running.start_worker()
    runtime = running.start(["-m", "runtime_service.server"], "runtime")
    wait_until((running.home / "runtime.json").exists, 30, lambda: runtime.poll() is None)
    return {"server": api, "worker1": worker, "runtime": runtime}


def test_every_line_of_every_process_is_json(tmp_path: Path) -> None:
    with installed(tmp_path, GRPC_VERBOSITY="INFO") as (running, redis):
        processes = start_all(running)
        client = secure_client(running)
        assert client.run({"name": "first"}).state == pb.JOB_STATE_SUCCEEDED
        assert client.run({"name": "fault", "do": "raise"}).state == pb.JOB_STATE_FAILED
        for name in processes:
            knock_wrongly(running.address if name != "runtime" else runtime_address(running))
        redis.kill()
        wait_until(lambda: said(running, "worker1", "Connection to broker lost"))
        wait_until(lambda: said(running, "server", "cannot look for jobs"))
        redis.start()
        assert client.run({"name": "second"}).state == pb.JOB_STATE_SUCCEEDED
        for name, process in processes.items():
            process.send_signal(signal.SIGUSR2)
            for text in odd_things.ALL:
                wait_until(lambda name=name, text=text: said(running, name, text))
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
        wait_until(lambda: said(running, "worker1", "Warm shutdown"))
        for name, process in processes.items():
            found = lines(running, name)
            assert {line["pid"] for line in found} == {process.pid}
            (core,) = (line for line in found if line["message"].startswith("E0000 00:00:1790000000"))
            assert (core["level"], core["logger"]) == ("ERROR", "stderr")
            (lost,) = (line for line in found if line["message"].startswith("thread odd has ended"))
            assert "what the thread has lost" in lost["exception"]
        of_job = [line for line in lines(running, "worker1") if line["logger"] == "ingot.stage" and line["job"]]
        assert {line["stage"] for line in of_job} >= {"build"}


def runtime_address(running: Installation) -> str:
    found: dict[str, str] = json.loads((running.home / "runtime.json").read_text())
    return found["grpc"]


def test_what_a_process_dies_of_is_json_too(tmp_path: Path) -> None:
    """The last lines are read by a process that outlives it, and ends when they are."""
    with installed(tmp_path) as (running, _):
        processes = start_all(running)
        for name, process in processes.items():
            process.send_signal(signal.SIGABRT)
            assert process.wait(timeout=30) == -signal.SIGABRT
            wait_until(lambda name=name: said(running, name, "Fatal Python error: Aborted"))
        time.sleep(0.2)
        for name in processes:
            assert any("Fatal Python error" in line["message"] for line in lines(running, name))
        assert_no_wrapper_is_left(processes)


def assert_no_wrapper_is_left(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    def left() -> list[str]:
        commands = (path for path in Path("/proc").glob("[0-9]*/cmdline"))
        texts = []
        for path in commands:
            with contextlib.suppress(OSError):
                texts.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        ids = {str(process.pid) for process in processes.values()}
        return [text for text in texts if "wrapper.py" in text and ids & set(text.split())]

    wait_until(lambda: left() == [])


def test_why_a_process_does_not_start_is_json(tmp_path: Path) -> None:
    with installed(tmp_path, INGOT_COMPILER_PORT="many", INGOT_RUNTIME_POLL_INTERVAL="often") as (running, _):
        commands = {"server": [str(HERE / "toy_server.py"), "ready"], "worker": [str(HERE / "toy_worker.py")]}
        commands |= {"real": ["-m", "compiler_service.server"], "runtime": ["-m", "runtime_service.server"]}
        commands |= {"housekeeping": ["-m", "compiler_service.housekeeping", "collect"]}
        for name, command in commands.items():
            assert running.start(command, name).wait(timeout=60) != 0
            wait_until(lambda name=name: said(running, name, "\n"))
            assert lines(running, name)[-1]["level"] == "CRITICAL"
