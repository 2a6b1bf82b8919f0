"""Jobs through a real client, a real worker and a real Redis; only the compiler in the stage's process is a toy."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import grpc
import pytest

from shared_ir.artifact.layout import open_version
from shared_ir.artifact.signature import TrustStore
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from tests.services.installation import Client, Installation, wait_until
from tests.services.processes import ends, runs

pytestmark = pytest.mark.services


def error_of(caught: pytest.ExceptionInfo[grpc.RpcError]) -> pb.ErrorDetail:
    (attached,) = (m.value for m in caught.value.trailing_metadata() if m.key == "ingot-error-bin")
    return pb.ErrorDetail.FromString(attached)


def test_from_model_to_a_downloaded_artifact(client: Client, running: Installation) -> None:
    job = client.run({"name": "main", "steps": 3}, name="main", labels=["stable", "canary"])
    assert job.state == pb.JOB_STATE_SUCCEEDED
    assert job.version == 1
    assert not job.cache_hit
    assert job.finished.ToNanoseconds() > job.started.ToNanoseconds() >= job.created.ToNanoseconds() > 0
    assert set(job.stage_seconds) == {"ingest", "build", "verify", "publish"}
    model = client.stub.GetModel(pb.GetModelRequest(name="main"))
    assert (model.latest_version, dict(model.labels)) == (1, {"stable": 1, "canary": 1})
    version = client.stub.ListVersions(pb.ListVersionsRequest(name="main")).versions[0]
    assert (version.job_id, version.targets[0].key) == (job.id, job.targets[0].artifact_key)
    directory = running.home / "download"
    path = None
    for part in client.stub.DownloadArtifact(pb.DownloadArtifactRequest(name="main", label="stable")):
        if part.WhichOneof("part") == "header":
            path = directory / part.header.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        else:
            assert path is not None
            path.write_bytes(path.read_bytes() + part.chunk)
    opened = open_version(directory, "1", TrustStore.load(running.home / "trust"))
    assert opened.manifest.name == "main"
    assert opened.report["verification"] == {"max_abs_error": 0.0}


def test_a_repeated_submit_is_a_hit_within_100_milliseconds(client: Client) -> None:
    model = {"name": "again"}
    first = client.run(model, name="again")
    data = json.dumps(model).encode()
    request = pb.CompileRequest(
        name="again", source=pb.ModelSource(model_sha256=first.model_sha256), targets=["x86-64-v3"], labels=["stable"]
    )
    assert client.upload(data) == first.model_sha256
    times = []
    for _ in range(5):
        started = time.monotonic()
        job = client.stub.Compile(request).job
        times.append(time.monotonic() - started)
        assert (job.state, job.version, job.cache_hit) == (pb.JOB_STATE_SUCCEEDED, 1, True)
    assert min(times) < 0.1
    assert job.targets[0].HasField("verification"), "as GetJob has it"
    assert job.targets[0].verification == client.job(job.id).targets[0].verification
    cancelled = client.stub.CancelJob(pb.CancelJobRequest(id=job.id))
    assert cancelled.targets[0].verification == job.targets[0].verification, "of a job that had finished before"
    assert client.stub.GetModel(pb.GetModelRequest(name="again")).labels["stable"] == 1
    watched = list(client.stub.WatchJob(pb.WatchJobRequest(id=job.id), timeout=10))
    assert watched[-1].job.state == pb.JOB_STATE_SUCCEEDED


def test_a_known_artifact_under_another_name_is_only_published(client: Client) -> None:
    model = {"name": "shared"}
    first = client.run(model, name="first-name")
    second = client.run(model, name="second-name")
    assert second.cache_hit
    assert second.version == 1
    assert second.targets[0].artifact_key == first.targets[0].artifact_key
    assert "build" not in second.stage_seconds


def test_several_targets_make_one_version(client: Client) -> None:
    names = ["x86-64-v3", "aws/graviton3", "raspberry-pi/4b"]
    job = client.run({"name": "fleet"}, name="fleet", targets=names)
    assert job.state == pb.JOB_STATE_SUCCEEDED
    version = client.stub.ListVersions(pb.ListVersionsRequest(name="fleet")).versions[0]
    assert [t.cpu for t in version.targets] == ["x86-64-v3", "neoverse-v1", "cortex-a72"]
    only = version.targets[2].key
    parts = client.stub.DownloadArtifact(pb.DownloadArtifactRequest(name="fleet", version=1, artifact_key=only))
    headers = [part.header.path for part in parts if part.WhichOneof("part") == "header"]
    assert len(headers) == 8  # oci-layout, index.json, manifest, config, four layers


def test_watching_shows_progress_and_logs_and_ends(client: Client) -> None:
    job = client.compile({"name": "watched", "steps": 4, "seconds": 0.8}, name="watched")
    events = list(client.stub.WatchJob(pb.WatchJobRequest(id=job.id), timeout=60))
    progress = [event.progress for event in events if event.WhichOneof("event") == "progress"]
    assert [(p.stage, p.done, p.total) for p in progress] == [("codegen", n, 4) for n in range(5)]
    assert progress[2].eta_seconds > 0
    assert progress[0].eta_seconds < 0
    assert "building watched" in [event.log.text for event in events if event.WhichOneof("event") == "log"]
    assert events[0].job.id == job.id
    assert events[-1].job.state == pb.JOB_STATE_SUCCEEDED
    middle = events[len(events) // 2]
    rest = list(client.stub.WatchJob(pb.WatchJobRequest(id=job.id, after=middle.sequence), timeout=10))
    assert [event.sequence for event in rest] == [event.sequence for event in events[len(events) // 2 + 1 :]]


def test_the_host_takes_changes(client: Client) -> None:
    model = client.upload(b'{"name": "planned"}')
    request = pb.CompileRequest(
        name="planned", source=pb.ModelSource(model_sha256=model), targets=["host -cores=1", "host"]
    )
    found = client.stub.Compile(request, timeout=20).job
    assert [target.target for target in found.targets] == ["host -cores=1", "host"]


def test_two_submits_of_the_same_compile_once(client: Client, running: Installation) -> None:
    model = {"name": "single", "seconds": 1.5}
    first, second = client.compile(model, name="single-a"), client.compile(model, name="single-b")
    assert second.targets[0].stage == "waiting"
    done = [client.wait(job.id) for job in (first, second)]
    assert [job.state for job in done] == [pb.JOB_STATE_SUCCEEDED] * 2
    assert "build" in done[0].stage_seconds
    assert "build" not in done[1].stage_seconds
    assert done[1].cache_hit


def test_cancelling_kills_the_compilation(client: Client, running: Installation) -> None:
    mark = f"cancel-{secrets.token_hex(8)}"
    job = client.compile({"name": "c", "do": "hang", "mark": mark}, name="cancelled")
    wait_until(lambda: runs(mark))
    cancelled = client.stub.CancelJob(pb.CancelJobRequest(id=job.id))
    assert cancelled.state == pb.JOB_STATE_CANCELLED
    assert cancelled.error.code == "CANCELLED"
    assert ends(mark)
    assert client.stub.CancelJob(pb.CancelJobRequest(id=job.id)).state == pb.JOB_STATE_CANCELLED
    events = list(client.stub.WatchJob(pb.WatchJobRequest(id=job.id), timeout=10))
    assert events[-1].job.state == pb.JOB_STATE_CANCELLED
    assert client.run({"name": "after"}, name="after").state == pb.JOB_STATE_SUCCEEDED


def test_who_waits_for_a_cancelled_compilation_takes_it_up(client: Client) -> None:
    model = {"name": "taken-up", "seconds": 2}
    first, second = client.compile(model, name="taken-a"), client.compile(model, name="taken-b")
    wait_until(lambda: client.stub.GetJob(pb.GetJobRequest(id=first.id)).targets[0].stage == "build")
    client.stub.CancelJob(pb.CancelJobRequest(id=first.id))
    assert client.wait(second.id).state == pb.JOB_STATE_SUCCEEDED


@pytest.mark.parametrize(
    ("model", "code", "text"),
    [
        ({"issues": ["Foo is not supported", "Bar neither"]}, "UNSUPPORTED_OPERATOR", "1 more"),
        ({"do": "error"}, "LIMIT_EXCEEDED", "too big"),
        ({"do": "raise"}, "COMPILER_FAULT", "KeyError"),
        ({"do": "abort"}, "COMPILER_FAULT", "SIGABRT"),
        ({"do": "memory"}, "RESOURCE_LIMIT", "memory"),
        ({"mismatch": True}, "NUMERIC_MISMATCH", "off by 3"),
        (b"not a model", "INVALID_MODEL", "not a model"),
    ],
)
def test_failures_keep_their_typed_error(client: Client, model: object, code: str, text: str) -> None:
    job = client.run(model, name="failing")
    assert job.state == pb.JOB_STATE_FAILED
    assert job.error.code == code
    assert text in job.error.message
    assert job.targets[0].error.code == code
    assert job.version == 0
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.GetModel(pb.GetModelRequest(name="failing"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_failed_job_can_be_submitted_again(client: Client) -> None:
    for _ in range(2):
        assert client.run({"do": "error", "x": 1}, name="failing").error.code == "LIMIT_EXCEEDED"


def test_check_lists_every_problem(client: Client) -> None:
    sha256 = client.upload(json.dumps({"issues": ["one", "two", "three"]}).encode())
    source = pb.ModelSource(model_sha256=sha256)
    answer = client.stub.CheckModel(pb.CheckModelRequest(source=source), timeout=30)
    assert not answer.ok
    assert [issue.message for issue in answer.issues] == ["one", "two", "three"]
    assert answer.issues[2].node == "node2 (Foo)"
    assert list(answer.inputs[0].shape) == ["batch", "max(a, 2)", "3"]
    broken = pb.ModelSource(model_sha256=client.upload(b"rubbish"))
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.CheckModel(pb.CheckModelRequest(source=broken), timeout=30)
    assert error_of(caught).code == "INVALID_MODEL"


def test_external_data(client: Client) -> None:
    data = json.dumps({"name": "external"}).encode()
    blob = client.upload(b"weights" * 10)
    source = pb.ModelSource(model_sha256=client.upload(data), external_data={"w/data.bin": blob})
    job = client.stub.Compile(pb.CompileRequest(name="external", source=source, targets=["x86-64-v3"])).job
    assert client.wait(job.id).state == pb.JOB_STATE_SUCCEEDED
    again = client.stub.Compile(pb.CompileRequest(name="external", source=source, targets=["x86-64-v3"])).job
    assert again.cache_hit
    plain = pb.ModelSource(model_sha256=source.model_sha256)
    other = client.stub.Compile(pb.CompileRequest(name="external", source=plain, targets=["x86-64-v3"])).job
    assert not other.cache_hit


def test_tuning_records_are_part_of_the_key(client: Client) -> None:
    tune = {"tune": pb.OptionValue(int_value=10)}
    job = client.run({"name": "tuned"}, name="tuned", options=tune)
    assert job.state == pb.JOB_STATE_SUCCEEDED
    again = client.compile({"name": "tuned"}, name="tuned", options=tune)
    assert again.cache_hit
    assert again.targets[0].artifact_key == job.targets[0].artifact_key


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"targets": []}, "INVALID_ARGUMENT", "needs a target"),
        ({"targets": ["x86-64-v3"] * 2}, "INVALID_ARGUMENT", "are the same"),
        ({"targets": ["aws/gravitron3"]}, "INVALID_TARGET", "aws/gravitron3"),
        ({"targets": ["llvm -mattr=x"]}, "INVALID_TARGET", "feature flag"),
        ({"name": "../x"}, "INVALID_ARGUMENT", "name for a model"),
        ({"name": ""}, "INVALID_ARGUMENT", "name for a model"),
        ({"name": "a@stable"}, "INVALID_ARGUMENT", "name for a model"),
        ({"name": "a+b"}, "INVALID_ARGUMENT", "name for a model"),
        ({"labels": ["No Label"]}, "INVALID_ARGUMENT", "name for a label"),
        ({"options": {"optlevel": pb.OptionValue(int_value=3)}}, "INVALID_ARGUMENT", "no such option"),
        ({"options": {"opt_level": pb.OptionValue()}}, "INVALID_ARGUMENT", "no value"),
        ({"options": {"opt_level": pb.OptionValue(double_value=float("nan"))}}, "INVALID_ARGUMENT", "finite"),
        ({"source": pb.ModelSource(model_sha256="ab" * 32)}, "NOT_FOUND", "not uploaded"),
        ({"source": pb.ModelSource(model_sha256="x")}, "INVALID_ARGUMENT", "not a sha256"),
        ({"source": None}, "INVALID_ARGUMENT", "not a sha256"),
    ],
)
def test_bad_requests_name_what_is_wrong(client: Client, change: dict[str, Any], code: str, text: str) -> None:
    source = pb.ModelSource(model_sha256=client.upload(b"{}"))
    fields: dict[str, Any] = {"name": "m", "source": source, "targets": ["x86-64-v3"]}
    request = pb.CompileRequest(**fields | change)
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Compile(request, timeout=20)
    error = error_of(caught)
    assert error.code == code
    assert text in error.message
    assert error.blame == pb.BLAME_USER


@pytest.mark.parametrize("name", ["", "..", "a ", "a/b", "\0", "a" * 200])
def test_what_is_no_name_of_a_model_names_none(client: Client, name: str) -> None:
    """Whatever is asked of it; where things lie in the store is nobody's concern."""
    for ask, request in (
        (client.stub.GetModel, pb.GetModelRequest(name=name)),
        (client.stub.ListVersions, pb.ListVersionsRequest(name=name)),
        (client.stub.DeleteModel, pb.DeleteModelRequest(name=name)),
        (client.stub.SetLabel, pb.SetLabelRequest(name=name, label="stable", version=1)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            ask(request, timeout=20)
        error = error_of(caught)
        assert (error.code, error.field) == ("INVALID_ARGUMENT", "model"), ask


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../b", "", "a\\b"])
def test_external_data_cannot_leave_the_models_folder(client: Client, location: str) -> None:
    blob = client.upload(b"{}")
    source = pb.ModelSource(model_sha256=blob, external_data={location: blob})
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Compile(pb.CompileRequest(name="m", source=source, targets=["host"]), timeout=20)
    assert error_of(caught).code == "EXTERNAL_DATA"


def test_unknown_things(client: Client) -> None:
    stub = client.stub
    for call, request in (
        (stub.GetJob, pb.GetJobRequest(id="nope")),
        (stub.CancelJob, pb.CancelJobRequest(id="nope")),
        (stub.GetModel, pb.GetModelRequest(name="nope")),
        (stub.ListVersions, pb.ListVersionsRequest(name="nope")),
        (stub.SetLabel, pb.SetLabelRequest(name="nope", label="stable", version=1)),
        (stub.DeleteLabel, pb.DeleteLabelRequest(name="nope", label="stable")),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=20)
        assert error_of(caught).code == "NOT_FOUND"
    for stream in (
        stub.WatchJob(pb.WatchJobRequest(id="nope"), timeout=20),
        stub.DownloadArtifact(pb.DownloadArtifactRequest(name="nope"), timeout=20),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert error_of(caught).code == "NOT_FOUND"


def test_lists_and_labels(client: Client) -> None:
    for number in (1, 2):
        assert client.run({"name": "listed", "n": number}, name="listed").version == number
    jobs = client.stub.ListJobs(pb.ListJobsRequest(limit=2, name="listed")).jobs
    assert [job.version for job in jobs] == [2, 1]
    state = pb.ListJobsRequest(state=pb.JOB_STATE_QUEUED, name="listed")
    assert list(client.stub.ListJobs(state).jobs) == []
    assert "listed" in [model.name for model in client.stub.ListModels(pb.ListModelsRequest()).models]
    labelled = client.stub.SetLabel(pb.SetLabelRequest(name="listed", label="stable", version=1))
    assert labelled.labels["stable"] == 1
    assert not client.stub.DeleteLabel(pb.DeleteLabelRequest(name="listed", label="stable")).labels


def test_capabilities_and_targets(client: Client, running: Installation) -> None:
    answer = client.stub.GetCapabilities(pb.GetCapabilitiesRequest())
    assert answer.compiler_version == "toy-1"
    assert answer.limits["upload_bytes"] == 100_000
    assert (running.home / "trust" / f"{answer.signing_key_id}.pub").read_text() == answer.signing_key
    names = [target.name for target in client.stub.ListTargets(pb.ListTargetsRequest()).targets]
    assert "aws/graviton3" in names
