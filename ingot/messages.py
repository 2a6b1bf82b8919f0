"""From protobuf messages of the compiler service to values, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any

from ingot.records import (
    AuditEvent,
    Capabilities,
    CheckReport,
    Job,
    JobEvent,
    JobLogLine,
    Label,
    LogLine,
    ModelVersion,
    OptionInfo,
    OutputFigures,
    Progress,
    PublishedModel,
    Source,
    TargetArtifact,
    TargetInfo,
    TargetJob,
    TensorInfo,
    Verification,
    in_order,
)
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import FIRST_SECOND, LAST_SECOND, is_within
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.status import error_from_pb


def job_from_pb(job: pb.Job) -> Job:
    return Job(
        id=job.id,
        name=job.name,
        state=state_name(job.state),
        model_sha256=job.model_sha256,
        targets=tuple(_target_from_pb(target) for target in job.targets),
        options=options_from_pb(job.options),
        labels=tuple(job.labels),
        created=_seconds(job, "created"),
        started=_seconds(job, "started"),
        finished=_seconds(job, "finished"),
        cache_hit=job.cache_hit,
        version=job.version,
        error=_error(job),
        stage_seconds=in_order(job.stage_seconds),
        user=job.user,
        deadline=_seconds(job, "deadline"),
        priority=job.priority,
        eta_seconds=job.eta_seconds if job.HasField("eta_seconds") else None,
    )


def event_from_pb(event: pb.JobEvent) -> JobEvent:
    kind = event.WhichOneof("event")
    progress, log = event.progress, event.log
    return JobEvent(
        sequence=event.sequence,
        time=_seconds(event, "time"),
        target=event.target,
        job=job_from_pb(event.job) if kind == "job" else None,
        progress=Progress(progress.stage, progress.done, progress.total, progress.eta_seconds, progress.message)
        if kind == "progress"
        else None,
        log=LogLine(log.level, log.text, log.stage) if kind == "log" else None,
    )


def log_line_from_pb(line: pb.JobLogLine) -> JobLogLine:
    return JobLogLine(_seconds(line, "time"), line.target, line.stage, line.level, line.text)


def check_from_pb(report: pb.CheckModelResponse) -> CheckReport:
    return CheckReport(
        ok=report.ok,
        opsets=dict(report.opsets),
        inputs=tuple(_tensor_from_pb(tensor) for tensor in report.inputs),
        outputs=tuple(_tensor_from_pb(tensor) for tensor in report.outputs),
        operators=dict(report.operators),
        issues=tuple(error_from_pb(issue) for issue in report.issues),
    )


def model_from_pb(model: pb.Model) -> PublishedModel:
    details = tuple(
        Label(own.label, own.version, own.etag, _seconds(own, "moved"), own.by) for own in model.label_details
    )
    return PublishedModel(model.name, model.latest_version, dict(model.labels), details, _error(model))


def audit_event_from_pb(event: pb.AuditEvent) -> AuditEvent:
    return AuditEvent(
        id=event.id,
        time=_seconds(event, "time"),
        action=event.action,
        by=event.by,
        model=event.model,
        version=event.version,
        label=event.label,
        before=event.before,
        after=event.after,
    )


def with_times(request: Any, **times: float) -> Any:
    """``request`` with these times in seconds since the epoch; 0 is none. Raises IngotError INVALID_ARGUMENT."""
    for name, seconds in times.items():
        if not isinstance(seconds, Real) or not is_within(seconds, FIRST_SECOND, LAST_SECOND):
            expected = f"seconds from {FIRST_SECOND} to {LAST_SECOND} (the years 1 to 9999)"
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "not a time", field=name, expected=expected, received=str(seconds)
            )
        if seconds:
            getattr(request, name).FromMicroseconds(round(seconds * 1e6))
    return request


def version_from_pb(version: pb.ModelVersion) -> ModelVersion:
    return ModelVersion(
        name=version.name,
        version=version.version,
        created=_seconds(version, "created"),
        model_sha256=version.model_sha256,
        job_id=version.job_id,
        digest=version.digest,
        targets=tuple(_artifact_from_pb(target) for target in version.targets),
    )


def target_info_from_pb(info: pb.TargetInfo) -> TargetInfo:
    return TargetInfo(info.name, info.description, info.triple, info.cpu, tuple(info.features), info.vector_bits)


def capabilities_from_pb(message: pb.Capabilities) -> Capabilities:
    return Capabilities(
        compiler_version=message.compiler_version,
        abi_version=message.abi_version,
        limits=dict(message.limits),
        options=tuple(OptionInfo(own.name, own.type, own.default, own.description) for own in message.options),
        operators=tuple(message.operators),
        min_opset=message.min_opset,
        max_opset=message.max_opset,
        signing_key=message.signing_key,
        signing_key_id=message.signing_key_id,
    )


def source_to_pb(source: Source) -> pb.ModelSource:
    return pb.ModelSource(model_sha256=source.model_sha256, external_data=dict(source.external_data))


def request(kind: Callable[..., Any], **fields: Any) -> Any:
    """A message of ``kind``.

    Raises:
        IngotError: INVALID_ARGUMENT, a field has a value of the wrong kind.
    """
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in fields.items())[:200]
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"a value cannot be sent: {error}"[:500],
            field=", ".join(fields),
            received=shown,
        ) from error


class Requests:
    """The messages of the compiler service by name, made as :func:`request` makes them: what callers give goes into them as it is."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(request, getattr(pb, name))


def names(field: str, given: Any) -> list[str]:
    """Raises IngotError INVALID_ARGUMENT for what is no list of strings: a string is one of letters."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        expected = f"[{given!r}]" if isinstance(given, str) else "a list of strings"
        raise _no_list(field, expected, given)
    found = list(given)
    if not all(isinstance(name, str) for name in found):
        raise _no_list(field, "a list of strings", found)
    return found


def _no_list(field: str, expected: str, received: Any) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"{field} is a list of names",
        field=field,
        expected=expected,
        received=repr(received)[:200],
    )


def options_to_pb(options: Mapping[str, Any]) -> dict[str, pb.OptionValue]:
    """Raises IngotError INVALID_ARGUMENT for an option that cannot travel."""
    found = {}
    for name, value in options.items():
        try:
            found[name] = _option_to_pb(name, value)
        except ValueError as error:  # numbers and texts that no message holds
            message = f"an option has a value that cannot be sent: {error}"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, message, field=name, received=repr(value)[:200]) from error
    return found


def options_from_pb(options: Mapping[str, pb.OptionValue]) -> dict[str, Any]:
    return {name: _option_from_pb(value) for name, value in options.items()}


def state_name(state: int) -> str:
    return str(pb.JobState.Name(state)).removeprefix("JOB_STATE_")


def state_to_pb(state: str) -> Any:
    """Raises IngotError INVALID_ARGUMENT for an unknown state; an empty one is any."""
    name = f"JOB_STATE_{state.upper() or 'UNSPECIFIED'}"
    if name not in pb.JobState.keys():  # noqa: SIM118 - an enum wrapper, not a dict
        states = ", ".join(key.removeprefix("JOB_STATE_").lower() for key in pb.JobState.keys()[1:])
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "there is no such state of a job",
            field="state",
            expected=states,
            received=state,
        )
    return pb.JobState.Value(name)


def _option_to_pb(name: str, value: Any) -> pb.OptionValue:
    match value:
        case bool():
            return pb.OptionValue(bool_value=value)
        case int():
            return pb.OptionValue(int_value=value)
        case float():
            return pb.OptionValue(double_value=value)
        case str():
            return pb.OptionValue(string_value=value)
        case None:
            return pb.OptionValue(string_value="")
        case Mapping():
            items = {str(key): _option_to_pb(f"{name}.{key}", item) for key, item in value.items()}
            return pb.OptionValue(map_value=pb.OptionMap(values=items))
        case Sequence():
            return pb.OptionValue(list_value=pb.OptionList(values=[_option_to_pb(name, item) for item in value]))
    raise IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "an option has a value that cannot be sent",
        field=name,
        expected="a bool, number, string, list or mapping",
        received=type(value).__name__,
    )


def _option_from_pb(value: pb.OptionValue) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_option_from_pb(item) for item in value.list_value.values]
    if kind == "map_value":
        return {key: _option_from_pb(item) for key, item in value.map_value.values.items()}
    return getattr(value, kind) if kind else None


def _target_from_pb(target: pb.TargetJob) -> TargetJob:
    return TargetJob(
        target=target.target,
        state=state_name(target.state),
        stage=target.stage,
        done=target.done,
        total=target.total,
        artifact_key=target.artifact_key,
        cache_hit=target.cache_hit,
        error=_error(target),
        verification=_verification_from_pb(target.verification) if target.HasField("verification") else None,
    )


def _verification_from_pb(found: pb.Verification) -> Verification:
    return Verification(
        state=found.state,
        reason=found.reason,
        oracle=found.oracle,
        sizes=dict(found.sizes),
        tolerance=found.tolerance,
        outputs=tuple(OutputFigures(o.name, o.max_abs_error, o.max_rel_error) for o in found.outputs),
        seconds=found.seconds,
        oracle_seconds=found.oracle_seconds,
        ratio=found.ratio,
        emulator=found.emulator,
    )


def _tensor_from_pb(tensor: pb.TensorInfo) -> TensorInfo:
    return TensorInfo(tensor.name, tensor.dtype, tuple(tensor.shape))


def _artifact_from_pb(target: pb.TargetArtifact) -> TargetArtifact:
    return TargetArtifact(
        key=target.key,
        triple=target.triple,
        cpu=target.cpu,
        features=tuple(target.features),
        abi_version=target.abi_version,
        min_glibc=target.min_glibc,
        compiler_version=target.compiler_version,
    )


def _error(message: pb.Job | pb.TargetJob | pb.Model) -> IngotError | None:
    return error_from_pb(message.error) if message.HasField("error") else None


def _seconds(message: Any, name: str) -> float:
    return float(getattr(message, name).ToNanoseconds() / 1e9) if message.HasField(name) else 0.0
