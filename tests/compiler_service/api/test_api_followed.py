"""What a client can say of a job beforehand, and learn of it afterwards: deadline, priority, lists, log, time left."""

from __future__ import annotations

import secrets
import time

import grpc
import pytest
from redis import Redis

from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import Client, Installation, wait_until
from tests.services.processes import ends, runs

pytestmark = pytest.mark.services


def log_of(client: Client, job: str, **chosen: str) -> list[pb.JobLogLine]:
    lines: list[pb.JobLogLine] = []
    token = ""
    while True:
        page = client.stub.GetJobLog(pb.GetJobLogRequest(id=job, page_size=2, page_token=token, **chosen))
        lines += page.lines
        token = page.next_page_token
        if not token:
            return lines


def test_a_running_stage_is_stopped_at_the_deadline(client: Client) -> None:
    mark = f"late-{secrets.token_hex(8)}"
    job = client.compile({"name": "late", "do": "hang", "mark": mark}, "late", timeout_seconds=15, priority=2)
    assert job.priority == 2
    assert job.deadline.ToNanoseconds() - job.created.ToNanoseconds() == pytest.approx(15e9, rel=1e-6)
    wait_until(lambda: runs(mark))
    done = client.wait(job.id)
    assert done.finished.ToNanoseconds() - done.deadline.ToNanoseconds() < 3e9
    assert (done.state, done.error.code, done.error.blame) == (
        pb.JOB_STATE_FAILED,
        "DEADLINE_EXCEEDED",
        pb.BLAME_USER,
    )
    assert "'x86-64-v3' in stage 'build'" in done.error.message
    assert ends(mark)


def test_the_log_of_a_job_by_stage(client: Client, running: Installation) -> None:
    job = client.run({"name": "logged"}, name="logged")
    assert job.state == pb.JOB_STATE_SUCCEEDED
    lines = log_of(client, job.id)
    assert [line.stage for line in lines if line.text.startswith("passed")] == ["ingest", "build", "verify", "publish"]
    build = log_of(client, job.id, stage="build")
    assert [line.text.split()[0] for line in build] == ["began", "building", "passed"]
    assert {line.target for line in build} == {"x86-64-v3"}
    assert log_of(client, job.id, target="x86-64-v4") == []
    assert all(abs(line.time.ToNanoseconds() / 1e9 - time.time()) < 300 for line in lines)
    Redis.from_url(running.redis_url).delete(f"ingot:job:{job.id}:log")
    assert log_of(client, job.id)[: len(build)] == lines[: len(build)]  # the object store has it
    with pytest.raises(grpc.RpcError, match="there is no such stage"):
        log_of(client, job.id, stage="bake")
    failed = client.run({"name": "wrong", "do": "error"}, name="wrong")
    assert [line.text for line in log_of(client, failed.id) if line.level == "ERROR"] == [
        "failed: too big; expected small, received big."
    ]


def test_jobs_by_what_was_asked_for_and_time_left(client: Client) -> None:
    client.run({"name": "some"}, name="some")
    before = time.time()
    job = client.compile({"name": "found", "seconds": 2}, "found", ["aws/graviton2"], labels=["canary"])
    assert client.job(job.id).eta_seconds > 0  # by what the job before took
    assert client.wait(job.id).state == pb.JOB_STATE_SUCCEEDED
    assert not client.job(job.id).HasField("eta_seconds")
    for chosen in (
        pb.ListJobsRequest(target="neoverse-n1"),
        pb.ListJobsRequest(target="aws/graviton2"),
        pb.ListJobsRequest(label="canary"),
        pb.ListJobsRequest(name="found", state=pb.JOB_STATE_SUCCEEDED),
    ):
        assert [own.id for own in client.stub.ListJobs(chosen).jobs] == [job.id], chosen
    since = pb.ListJobsRequest(page_size=1)
    since.since.FromMicroseconds(round(before * 1e6))
    page = client.stub.ListJobs(since)
    assert [own.id for own in page.jobs] == [job.id]
    since.page_token = page.next_page_token
    assert not since.page_token or not client.stub.ListJobs(since).jobs
    page = client.stub.ListJobs(pb.ListJobsRequest(page_size=1))
    older = client.stub.ListJobs(pb.ListJobsRequest(page_size=1, page_token=page.next_page_token))
    assert [own.name for own in (*page.jobs, *older.jobs)] == ["found", "some"]
