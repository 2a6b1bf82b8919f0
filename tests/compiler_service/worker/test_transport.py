"""What a worker does of its own accord when Redis was away."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kombu import transport
from redis import Redis
from redis.exceptions import RedisError

from compiler_service.api.answers import typed
from compiler_service.jobs.records import JobStage
from compiler_service.settings import CompilerSettings
from compiler_service.worker.app import CeleryQueue, make_app
from compiler_service.worker.consuming import MOST_SILENT_SECONDS
from compiler_service.worker.transport import MOST_PAUSE_SECONDS, install
from shared_ir.errors import ErrorCode
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import installation, wait_until
from tests.services.redis_server import OwnRedis

pytestmark = pytest.mark.services


class EnoughError(Exception):
    """Tries enough."""


def test_pauses_between_tries_to_connect_do_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda seconds: None)
    app = make_app(CompilerSettings(redis_url=f"unix://{tmp_path}/nowhere.sock"))
    pauses: list[float] = []

    def told(error: Exception, pause: float) -> None:
        pauses.append(pause)
        if len(pauses) > 20:
            raise EnoughError

    with pytest.raises(EnoughError):
        app.connection_for_read().ensure_connection(told)
    assert max(pauses) == MOST_PAUSE_SECONDS < MOST_SILENT_SECONDS / 2


def test_a_message_whose_end_redis_was_not_told_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kombu.transport.TRANSPORT_ALIASES", dict(transport.TRANSPORT_ALIASES))
    monkeypatch.setattr("kombu.transport._transport_cache", {})
    install()
    with OwnRedis(tmp_path) as redis:
        app = make_app(CompilerSettings(redis_url=redis.url))
        CeleryQueue(app).send(JobStage.INGEST, "j1", -1)
        channel = app.connection_for_read().channel()
        channel.basic_qos(0, 1, False)
        message = channel.basic_get("ingot")
        assert not channel.qos.can_consume()
        redis.kill()
        with pytest.raises(channel.connection_errors):
            message.ack()
        assert channel.qos.can_consume()


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[" * 100_000, b"[1]", b"null", b'{"body":"x"}', b"7"])
def test_what_is_no_message_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """It ended the worker."""
    monkeypatch.setattr("kombu.transport.TRANSPORT_ALIASES", dict(transport.TRANSPORT_ALIASES))
    monkeypatch.setattr("kombu.transport._transport_cache", {})
    install()
    with OwnRedis(tmp_path) as redis:
        app = make_app(CompilerSettings(redis_url=redis.url))
        app.connection_for_read().channel().client.rpush("ingot", text)
        CeleryQueue(app).send(JobStage.INGEST, "j1", -1)  # taken after it
        found: list[str] = []
        with app.connection_for_read() as connection:
            consumer = connection.Consumer(
                [app.amqp.queues["ingot"]], no_ack=True, on_message=lambda m: found.append(m.body)
            )
            with consumer:
                wait_until(lambda: _drain(connection) and bool(found))
        assert "j1" in str(found[0])


def _drain(connection: Any) -> bool:
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=1)
    return True


@pytest.mark.parametrize("asked", [lambda q: q.send(JobStage.INGEST, "j1", -1), lambda q: q.waiting(())])
def test_a_broker_that_cannot_be_reached_is_a_redis_that_is_away(
    tmp_path: Path, asked: Callable[[CeleryQueue], object]
) -> None:
    """Not a fault of ours: who asks is told to try again."""
    queue = CeleryQueue(make_app(CompilerSettings(redis_url=f"redis+socket://{tmp_path}/nowhere.sock")))
    with pytest.raises(RedisError) as caught:
        asked(queue)
    assert typed(caught.value).code is ErrorCode.UNAVAILABLE


def test_a_worker_whose_only_slot_was_taken_goes_on_when_redis_is_back(tmp_path: Path) -> None:
    """It is the same worker, which has not started anew."""
    with OwnRedis(tmp_path) as redis, installation(tmp_path / "home", INGOT_REDIS_URL=redis.url) as running:
        running.start_server()
        worker, client = running.start_worker(INGOT_WORKERS="1"), running.client()
        job = client.compile({"name": "long", "seconds": 1000}, "long")
        wait_until(lambda: client.job(job.id).targets[0].stage == "build")
        redis.kill()
        log = running.home / "worker1.log"
        wait_until(lambda: "is left as it is" in log.read_text())
        redis.start()
        # it may have been sent once more, and taken the slot again
        client.stub.CancelJob(pb.CancelJobRequest(id=job.id))
        other = client.run({"name": "other"}, name="other")
        assert other.state == pb.JOB_STATE_SUCCEEDED
        assert "starting anew" not in log.read_text()
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=30)


_REFUSALS = {
    "no room": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "a replica": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
}
"""What has a Redis that is there refuse to write, and what ends that."""


@pytest.mark.parametrize("refusal", _REFUSALS)
@pytest.mark.parametrize("seconds", [0, 2])
def test_a_redis_that_refuses_to_write_ends_no_worker(tmp_path: Path, refusal: str, seconds: int) -> None:
    """Nobody would start it again but a supervisor; whatever it did when Redis began to refuse."""
    begin, end = _REFUSALS[refusal]
    with OwnRedis(tmp_path) as redis, installation(tmp_path / "home", INGOT_REDIS_URL=redis.url) as running:
        running.start_server()
        worker, client = running.start_worker(INGOT_WORKERS="1"), running.client()
        job = client.compile({"name": "met", "seconds": seconds}, "met")
        wait_until(lambda: client.job(job.id).targets[0].stage == "build")
        control: Any = Redis.from_url(redis.url)
        control.execute_command(*begin)
        time.sleep(4)  # the stage ends, and whoever asks for messages asks some more
        assert worker.poll() is None
        control.execute_command(*end)
        wait_until(lambda: client.job(job.id).state == pb.JOB_STATE_SUCCEEDED)
        assert client.run({"name": "other"}, name="other").state == pb.JOB_STATE_SUCCEEDED
        assert worker.poll() is None
        assert "Traceback" not in (running.home / "worker1.log").read_text()
