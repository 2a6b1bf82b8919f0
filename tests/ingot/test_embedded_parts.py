"""The parts of `ingot up`: ports, the private Redis, child processes, addresses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ingot.embedded.installation import overruled, service_environment
from ingot.embedded.ports import Ports, choose
from ingot.embedded.process import LAUNCHER, ChildProcess
from ingot.embedded.redis import PrivateRedis, redis_binary
from ingot.home import Addresses, home_directory
from shared_ir.errors import ErrorCode, IngotError


def test_usual_ports_where_they_are_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert choose(None, port) == 0
        assert choose(port, 1) == port
    assert choose(None, port) == port
    assert choose(0, port) == 0


def test_redis_answers_on_a_socket_of_its_owner_alone(tmp_path: Path) -> None:
    redis = PrivateRedis.place(tmp_path, tmp_path / "other")
    assert not redis.is_ready()
    child = ChildProcess.start("redis", redis.command(), dict(os.environ), tmp_path / "redis.log")
    try:
        deadline = time.monotonic() + 10
        while not redis.is_ready():
            assert time.monotonic() < deadline, child.last_words()
            time.sleep(0.02)
        assert redis.socket.parent.stat().st_mode & 0o077 == 0
    finally:
        child.terminate()
        assert child.wait(10)
    assert not redis.is_ready()


def test_a_long_home_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    redis = PrivateRedis.place(tmp_path / ("long" * 30), tmp_path / "short")
    assert redis.socket.parent == tmp_path / "short"


def test_without_any_redis_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(IngotError, match="INGOT_REDIS_URL") as caught:
        redis_binary()
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_a_child_dies_with_the_parent_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, os, time;"
        f"p = subprocess.Popen([sys.executable, '-I', '-S', {str(LAUNCHER)!r}, str(os.getpid()), '/bin/sleep', '60']);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        while Path(f"/proc/{child}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 5
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_whose_parent_is_gone_does_not_start() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", LAUNCHER, "1", "/bin/echo", "hello"], capture_output=True)
    assert done.returncode == 1
    assert done.stdout == b""


def test_stopping_a_child_takes_its_own_children_along(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait; sleep 60"]
    child = ChildProcess.start("shell", command, dict(os.environ), tmp_path / "log")
    while not (text := (tmp_path / "log").read_text().strip()):
        time.sleep(0.01)
    child.terminate()
    assert not child.wait(0.3)  # it ignores the signal, so it is killed
    deadline = time.monotonic() + 5
    while is_running(int(text)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_last_words(tmp_path: Path) -> None:
    child = ChildProcess.start("shell", ["/bin/sh", "-c", "echo one; echo two >&2; exit 3"], {}, tmp_path / "log")
    assert child.process.wait() == 3
    assert not child.is_alive
    assert child.last_words() == "two"


def test_addresses_come_from_the_environment_the_file_or_the_usual_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("INGOT_COMPILER_ADDRESS", "INGOT_RUNTIME_ADDRESS", "INGOT_RUNTIME_HTTP_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert Addresses.find(tmp_path) == Addresses()
    Addresses(compiler="a:1", grpc="b:2", http="c:3", pid=7).write(tmp_path)
    assert Addresses.find(tmp_path) == Addresses(compiler="a:1", grpc="b:2", http="c:3", pid=7)
    monkeypatch.setenv("INGOT_COMPILER_ADDRESS", "d:4")
    assert Addresses.find(tmp_path).compiler == "d:4"
    (tmp_path / "up.json").write_text("{")
    with pytest.raises(IngotError, match=r"up\.json"):
        Addresses.find(tmp_path)


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INGOT_HOME", str(tmp_path))
    assert home_directory() == tmp_path
    assert home_directory("/elsewhere") == Path("/elsewhere")
    monkeypatch.delenv("INGOT_HOME")
    assert home_directory() == Path.home() / ".ingot"


def test_settings_of_the_user_pass_through(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INGOT_STORE_URL", "s3://bucket/models")
    monkeypatch.setenv("INGOT_RUNTIME_POLL_INTERVAL", "9")
    monkeypatch.setenv("INGOT_HOME", "/somewhere/else")
    monkeypatch.setenv("INGOT_TLS_CERTIFICATE", "certificate.pem")
    monkeypatch.setenv("INGOT_COMPILER_PORT", "8500")
    found = service_environment(tmp_path, "unix:///r", Ports.free(), "*@stable")
    assert found["INGOT_STORE_URL"] == "s3://bucket/models"
    assert found["INGOT_RUNTIME_POLL_INTERVAL"] == "9"
    assert found["INGOT_HOME"] == str(tmp_path)
    assert found["INGOT_COMPILER_PORT"] == "0"
    assert "INGOT_TLS_CERTIFICATE" not in found  # everything stays on the loopback interface
    assert overruled(found) == ("INGOT_COMPILER_PORT", "INGOT_TLS_CERTIFICATE")  # and that is said


def test_the_option_counts_more_than_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for environment, option, served in (
        (None, None, "*@stable"),
        ("a@latest", None, "a@latest"),
        ("a", "b@all", "b@all"),
    ):
        if environment is not None:
            monkeypatch.setenv("INGOT_RUNTIME_MODELS", environment)
        assert service_environment(tmp_path, "", Ports.free(), option)["INGOT_RUNTIME_MODELS"] == served


def is_running(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
