"""Real workers on machines that run different things: who verifies what."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest

from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import Client, installation

pytestmark = [pytest.mark.services, pytest.mark.slow]
TARGET = "raspberry-pi/4b"
REQUIRED = {"verification": pb.OptionValue(string_value="required")}


def path_with(folder: Path, *programs: str) -> str:
    """A ``PATH`` on which there are these and nothing else."""
    folder.mkdir()
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def worker_names(client: Client, stage: str, job: str) -> set[str]:
    lines = client.stub.GetJobLog(pb.GetJobLogRequest(id=job)).lines
    found = (re.search(r"began on worker (\S+)", line.text) for line in lines if line.stage == stage)
    return {match[1] for match in found if match}


def await_verification(client: Client) -> None:
    """Until the new worker has said what it can run, which it does a while after it has started where the machine is busy."""
    for number in itertools.count():
        early = client.run({"name": f"early{number}"}, name=f"early{number}", targets=[TARGET], options=REQUIRED)
        if early.state == pb.JOB_STATE_SUCCEEDED:
            return
        assert (early.error.code, number < 60) == ("NOT_VERIFIED", True)
        time.sleep(0.5)


def test_only_workers_that_can_run_it_verify_where_there_are_any(tmp_path: Path) -> None:
    """Three workers have no emulator, and take whatever else there is; then one comes that has, and goes again."""
    without, having = path_with(tmp_path / "bin", "true"), path_with(tmp_path / "qemu", "qemu-aarch64")
    with installation(tmp_path / "home", INGOT_WORKERS="1") as running:
        running.start_server()
        client = running.client()
        for _ in range(3):
            running.start_worker(PATH=without)
        refused = client.run({"name": "early"}, targets=[TARGET], options=REQUIRED)
        assert (refused.state, refused.error.code) == (pb.JOB_STATE_FAILED, "NOT_VERIFIED")
        assert "no worker that verifies can run code for aarch64-linux-gnu" in refused.error.message
        able = running.start_worker(PATH=having)
        await_verification(client)
        jobs = [client.compile({"name": f"m{n}"}, f"m{n}", [TARGET], options=REQUIRED).id for n in range(8)]
        assert {client.wait(job).state for job in jobs} == {pb.JOB_STATE_SUCCEEDED}
        names = set().union(*(worker_names(client, "verify", job) for job in jobs))
        assert len(names) == 1
        assert set().union(*(worker_names(client, "build", job) for job in jobs)) - names
        able.kill()
        able.wait()
        refused = client.run({"name": "late"}, targets=[TARGET], options=REQUIRED)
        assert (refused.state, refused.error.code) == (pb.JOB_STATE_FAILED, "NOT_VERIFIED")
        published = client.run({"name": "later"}, name="later", targets=[TARGET])
        assert published.state == pb.JOB_STATE_SUCCEEDED
