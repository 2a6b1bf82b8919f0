"""Workers that die, stop or lose their Redis, and what becomes of the jobs. Real processes throughout."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from redis import Redis

from compiler_service.jobs.reconciler import MAX_LOSSES
from compiler_service.settings import CompilerSettings
from compiler_service.worker.app import make_app
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import Client, Installation, installation, wait_until
from tests.services.processes import ends, runs
from tests.services.redis_server import wait_for_redis

pytestmark = pytest.mark.services


@pytest.fixture(name="running")
def fixture_running(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path / "home", INGOT_LEASE_SECONDS="1.5") as running:
        running.start_server()
        yield running


def stage_of(client: Client, job: str) -> str:
    return str(client.stub.GetJob(pb.GetJobRequest(id=job)).targets[0].stage)


def hang(running: Installation, name: str) -> tuple[pb.Job, str]:
    """A job whose build stage hangs, and a word that is in the command line of one of its processes."""
    mark = f"{name}-{secrets.token_hex(8)}"
    job = running.client().compile({"name": name, "do": "hang", "mark": mark}, name=name)
    wait_until(lambda: runs(mark))
    return job, mark


def test_a_job_of_a_killed_worker_goes_to_another(running: Installation) -> None:
    client = running.client()
    worker = running.start_worker()
    job = client.compile({"name": "a", "seconds": 3}, name="a")
    wait_until(lambda: stage_of(client, job.id) == "build")
    time.sleep(0.5)
    worker.kill()
    worker.wait()
    running.start_worker()
    done = client.wait(job.id)
    assert done.state == pb.JOB_STATE_SUCCEEDED
    logs = [e.log.text for e in client.stub.WatchJob(pb.WatchJobRequest(id=job.id)) if e.WhichOneof("event") == "log"]
    assert any("worker was lost" in text for text in logs)


def test_the_stage_dies_with_its_worker(running: Installation) -> None:
    worker = running.start_worker()
    _, mark = hang(running, "orphan")
    worker.kill()
    worker.wait()
    assert ends(mark)


def test_a_job_that_loses_too_many_workers_has_failed(running: Installation) -> None:
    client = running.client()
    worker = running.start_worker()
    job, mark = hang(running, "deadly")
    for _ in range(MAX_LOSSES - 1):
        worker.kill()
        worker.wait()
        assert ends(mark)
        worker = running.start_worker()
        wait_until(lambda: runs(mark))
    worker.kill()
    worker.wait()
    running.start_worker()
    done = client.wait(job.id)
    assert done.state == pb.JOB_STATE_FAILED
    assert (done.error.code, done.error.blame) == ("WORKER_LOST", pb.BLAME_SERVICE)
    assert f"lost {MAX_LOSSES} times" in done.error.message


def test_a_worker_that_is_told_to_stop_hands_its_stage_on(running: Installation) -> None:
    client = running.client()
    worker = running.start_worker()
    job = client.compile({"name": "b", "seconds": 4}, name="b")
    wait_until(lambda: stage_of(client, job.id) == "build")
    for _ in range(2):  # a handover does not count as a loss
        time.sleep(0.5)
        started = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=20)
        assert time.monotonic() - started < 10
        assert client.stub.GetJob(pb.GetJobRequest(id=job.id)).state == pb.JOB_STATE_RUNNING
        worker = running.start_worker()
    assert client.wait(job.id).state == pb.JOB_STATE_SUCCEEDED


def test_an_idle_worker_stops_at_once(running: Installation) -> None:
    worker = running.start_worker()
    started = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    assert time.monotonic() - started < 5
    assert not (running.home / "worker.alive").exists()


def test_a_worker_whose_key_is_revoked_signs_nothing_more_and_ends(running: Installation) -> None:
    client = running.client()
    worker = running.start_worker()
    job = client.compile({"name": "r", "seconds": 2}, name="r")
    wait_until(lambda: stage_of(client, job.id) == "build")
    for key in (running.home / "trust").glob("*.pub"):
        key.unlink()
    assert worker.wait(timeout=20) == 1
    assert client.job(job.id).state == pb.JOB_STATE_RUNNING
    assert running.start(["tests/services/toy_worker.py"], "revoked").wait(timeout=30) != 0
    (running.home / "signing.pem").unlink()
    running.start_worker()
    assert client.wait(job.id).version == 1
    assert client.stub.GetModel(pb.GetModelRequest(name="r")).latest_version == 1


def test_the_same_task_delivered_twice_compiles_once(running: Installation) -> None:
    client = running.client()
    job = client.compile({"name": "twice", "seconds": 1}, name="twice")
    settings = CompilerSettings.from_environment({**running.environment})
    app = make_app(settings)
    for _ in range(3):
        app.send_task("ingot.ingest", args=(job.id,))
    running.start_worker()
    assert client.wait(job.id).state == pb.JOB_STATE_SUCCEEDED
    time.sleep(1)
    assert client.stub.GetModel(pb.GetModelRequest(name="twice")).latest_version == 1
    logs = [e.log.text for e in client.stub.WatchJob(pb.WatchJobRequest(id=job.id)) if e.WhichOneof("event") == "log"]
    assert logs.count("building twice") == 1


def test_losing_redis_loses_no_artifact(running: Installation) -> None:
    client = running.client()
    running.start_worker()
    job = client.run({"name": "kept"}, name="kept", labels=["stable"])
    assert job.state == pb.JOB_STATE_SUCCEEDED
    Redis.from_url(running.redis_url).flushall()
    model = client.stub.GetModel(pb.GetModelRequest(name="kept"))
    assert (model.latest_version, model.labels["stable"]) == (1, 1)
    again = client.compile({"name": "kept"}, name="kept")
    assert (again.cache_hit, again.version) == (True, 1)
    new = client.run({"name": "new"}, name="new")
    assert new.state == pb.JOB_STATE_SUCCEEDED


def test_only_ids_travel_through_the_broker(running: Installation) -> None:
    client = running.client()
    job = client.compile({"name": "secret-name"}, name="model-name")
    redis = Redis.from_url(running.redis_url, decode_responses=True)
    messages = redis.lrange("ingot", 0, -1)
    assert len(messages) == 1
    message = json.loads(messages[0])
    assert message["content-type"] == "application/json"
    assert job.id in message["headers"]["argsrepr"]
    assert "model-name" not in messages[0]


def test_celery_settings_are_what_long_compilations_need() -> None:
    conf = make_app(CompilerSettings()).conf
    assert conf.task_acks_late
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result
    assert conf.result_backend is None
    assert conf.accept_content == ["json"]
    assert conf.task_serializer == "json"
    assert not conf.worker_enable_remote_control
    assert not conf.worker_send_task_events
    assert conf.broker_transport_options["visibility_timeout"] > CompilerSettings().job_seconds


@pytest.fixture(name="s3")
def fixture_s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    ).create_bucket(Bucket="ingot")
    yield f"http://{host}:{port}"
    server.stop()


def test_with_a_redis_server_and_s3(tmp_path: Path, s3: str) -> None:
    """What production uses: ``redis-server`` over TCP, object storage over HTTP."""
    environment = {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "INGOT_STORE_URL": "s3://ingot/production",
        "INGOT_CACHE_DIR": str(tmp_path / "cache"),
    }
    with tcp_redis(tmp_path) as url, installation(tmp_path / "home", INGOT_REDIS_URL=url, **environment) as running:
        running.start_server()
        running.start_worker()
        client = running.client()
        job = client.run({"name": "remote"}, name="remote", labels=["stable"], targets=["x86-64-v3", "aws/graviton2"])
        assert job.state == pb.JOB_STATE_SUCCEEDED, running.logs()
        assert client.compile({"name": "remote"}, name="remote", targets=["x86-64-v3", "aws/graviton2"]).cache_hit
        parts = list(client.stub.DownloadArtifact(pb.DownloadArtifactRequest(name="remote", label="stable")))
        assert sum(part.WhichOneof("part") == "header" for part in parts) > 8
        assert not (running.home / "store").exists()


@contextmanager
def tcp_redis(directory: Path) -> Iterator[str]:
    """Debian's ``redis-server`` on a free TCP port."""
    binary = shutil.which("redis-server")
    assert binary, "this test needs redis-server (Debian package `redis-server`)"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary, "--port", str(port), "--save", "", "--dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        wait_for_redis(url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=10)
