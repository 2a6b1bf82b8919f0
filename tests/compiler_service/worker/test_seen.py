"""What operators see of a job: lines of every process that say which job they are of, and one trace through all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared_ir.digest import sha256_hex
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.access.principal import Principal
from shared_ir.service_kit.access.token_file import editing
from shared_ir.service_kit.telemetry.trace_parent import TraceParent
from tests.services.collector import collector
from tests.services.installation import Client, Installation, installation, wait_until

pytestmark = [pytest.mark.services, pytest.mark.slow]


def lines(running: Installation, name: str) -> list[dict[str, Any]]:
    """Those of a log that are JSON."""
    text = (running.home / f"{name}.log").read_text().splitlines()
    return [json.loads(line) for line in text if line.startswith("{")]


def test_a_job_can_be_followed_through_every_process(tmp_path: Path) -> None:
    tokens, trace = tmp_path / "tokens.json", TraceParent.new()
    with editing(tokens) as held:
        held[0], token = held[0].with_token(Principal("ci"))
    with collector() as (url, spans):
        seen = {"INGOT_LOG_FORMAT": "json", "INGOT_TRACES": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        with installation(tmp_path / "home", INGOT_API_TOKENS=str(tokens), **seen) as running:
            running.start_server()
            running.start_worker()
            known = (("authorization", f"Bearer {token}"), ("traceparent", str(trace)))
            client = Client(running.address, known)
            source = pb.ModelSource(model_sha256=client.upload(json.dumps({"name": "seen"}).encode()))
            order = pb.CompileRequest(name="m", source=source, targets=["x86-64-v3"])
            job = client.stub.Compile(order, metadata=known, timeout=20).job.id
            asked = pb.GetJobRequest(id=job)
            wait_until(lambda: client.stub.GetJob(asked, metadata=known).state == pb.JOB_STATE_SUCCEEDED, 60)
            running.stop()
            api, worker = lines(running, "server"), lines(running, "worker1")
    about = {"job": job, "user": "ci", "trace_id": trace.trace_id}
    compiled = [line for line in api if line.get("method") == "Compile"]
    assert [line["logger"] for line in compiled] == ["ingot.audit"]
    for line in compiled:
        assert {name: line[name] for name in about} == about
        assert (line["code"], line["process"]) == ("OK", "compiler-api")
    told = [line for line in worker if line["job"]]
    ended = {line["stage"] for line in told if line["message"].startswith("stage ")}
    assert ended == {"ingest", "build", "verify", "publish"}
    assert all({name: line[name] for name in about} == about for line in told)
    assert [line["message"] for line in told if line["logger"] == "ingot.stage"] == ["building seen"]
    for line in (*api, *worker):
        assert {"time", "level", "process", "pid", "logger", "message", "job", "stage", "user", "trace_id"} <= set(line)
        assert token not in json.dumps(line)
        assert sha256_hex(token.encode()) not in json.dumps(line)

    own = {id: span for id, span in spans.items() if span.trace_id.hex() == trace.trace_id}
    names = {span.name for span in own.values()}
    assert {"ingot.compiler.v1.CompilerService/Compile", "queue send", "queue wait", "stage build"} <= names
    assert {"process build", "compiler codegen", "store put", "store get"} <= names
    for span in own.values():
        parent = span.parent_span_id.hex()
        assert parent in own or parent == trace.span_id, span.name
