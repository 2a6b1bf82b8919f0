"""Between protobuf messages and the values of the service: ``from_pb`` functions decode, ``to_pb`` functions encode."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from compiler_service.catalogue import Catalogue
from compiler_service.jobs.history.lists import JobFilter
from compiler_service.jobs.history.logs import LogEntry
from compiler_service.jobs.records import Event, JobRecord, JobState, Submission, TargetRecord, UploadedModel
from compiler_service.store.sources import UploadAnnouncement
from shared_ir.artifact.value import ABI_VERSION
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import FIRST_SECOND, LAST_SECOND
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.service_kit.access.principal import Principal
from shared_ir.service_kit.status import cleaned, error_to_pb

_LOG = logging.getLogger(__name__)
_STATES: Mapping[JobState, Any] = {state: pb.JobState.Value(f"JOB_STATE_{state.value}") for state in JobState}


def upload_from_pb(header: pb.UploadHeader, caller: Principal) -> UploadAnnouncement:
    return UploadAnnouncement(
        header.name, header.size, header.sha256, header.offset, caller.namespace, caller.quota.bytes
    )


def is_model(header: pb.UploadHeader) -> bool:
    """Whether a file is to be a model, and no weights of one."""
    if header.kind == pb.FILE_KIND_UNSPECIFIED:
        return header.name.endswith(".onnx")
    return header.kind == pb.FILE_KIND_MODEL


def source_from_pb(source: pb.ModelSource, namespace: str = "") -> UploadedModel:
    return UploadedModel(source.model_sha256, dict(source.external_data), namespace)


def submission_from_pb(request: pb.CompileRequest, namespace: str = "") -> Submission:
    return Submission(
        name=request.name,
        source=source_from_pb(request.source, namespace),
        targets=tuple(request.targets),
        options=options_from_pb(request.options),
        labels=tuple(request.labels),
        idempotency_key=request.idempotency_key,
        timeout=request.timeout_seconds,
        priority=request.priority,
    )


def options_from_pb(options: Mapping[str, pb.OptionValue]) -> dict[str, Any]:
    """Raises IngotError INVALID_ARGUMENT for an option without a value."""
    return {name: _value_from_pb(name, value) for name, value in options.items()}


def _value_from_pb(name: str, value: pb.OptionValue) -> Any:
    kind = value.WhichOneof("kind")
    match kind:
        case None:
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "the option has no value", field=name)
        case "list_value":
            return [_value_from_pb(name, item) for item in value.list_value.values]
        case "map_value":
            return {key: _value_from_pb(f"{name}.{key}", item) for key, item in value.map_value.values.items()}
        case "double_value" if not math.isfinite(value.double_value):
            received = str(value.double_value)
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "the option is not finite", field=name, received=received)
    return getattr(value, kind)


def option_to_pb(value: Any) -> pb.OptionValue:
    match value:
        case bool():
            return pb.OptionValue(bool_value=value)
        case int():
            return pb.OptionValue(int_value=value)
        case float():
            return pb.OptionValue(double_value=value)
        case list() | tuple():
            return pb.OptionValue(list_value=pb.OptionList(values=[option_to_pb(item) for item in value]))
        case dict():
            values = {key: option_to_pb(item) for key, item in value.items()}
            return pb.OptionValue(map_value=pb.OptionMap(values=values))
    return pb.OptionValue(string_value="" if value is None else str(value))


def state_from_pb(state: int) -> JobState | None:
    """None for unspecified."""
    return next((own for own, number in _STATES.items() if number == state), None)


def seconds_from_pb(field: str, moment: Timestamp) -> float:
    """Since the epoch; 0 where none was given, and little more for what was before it. Raises IngotError INVALID_ARGUMENT.

    NOTE: protobuf carries any numbers; ``Timestamp`` itself raises ValueError for some of those that are no time, and takes others.
    """
    if not FIRST_SECOND <= moment.seconds <= LAST_SECOND or not 0 <= moment.nanos < 10**9:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a time",
            field=field,
            expected=f"seconds from {FIRST_SECOND} to {LAST_SECOND} (the years 1 to 9999), nanos from 0 to 999999999",
            received=f"{moment.seconds} seconds, {moment.nanos} nanos",
        )
    seconds = float(moment.ToMicroseconds() / 1e6)
    return max(seconds, 1e-6) if seconds else 0.0


def job_filter_from_pb(request: pb.ListJobsRequest, prefix: str) -> JobFilter:
    """Of models whose name starts with ``prefix`` alone. Raises IngotError INVALID_ARGUMENT."""
    state = state_from_pb(request.state)
    if request.state and state is None:
        states = ", ".join(str(number) for number in _STATES.values())
        message = "there is no such state of a job"
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT, message, field="state", expected=states, received=str(request.state)
        )
    return JobFilter(
        state=state,
        model=request.name,
        target=request.target,
        label=request.label,
        user=request.user,
        since=seconds_from_pb("since", request.since),
        until=seconds_from_pb("until", request.until),
        prefix=prefix,
    )


def job_to_pb(record: JobRecord, left: float | None = None) -> pb.Job:
    """``left`` are the seconds of work until it will have finished, None for not known."""
    job = pb.Job(
        id=record.id,
        name=record.name,
        state=_STATES[record.state],
        model_sha256=record.source.model_sha256,
        targets=[_target_to_pb(target) for target in record.targets],
        options={name: option_to_pb(value) for name, value in record.options.items()},
        labels=record.labels,
        cache_hit=record.cache_hit,
        version=record.version,
        error=error_to_pb(record.error) if record.error else None,
        stage_seconds=dict(record.stage_seconds),
        user=record.user,
        priority=record.priority,
        eta_seconds=left,
    )
    for field in ("created", "started", "finished", "deadline"):
        if seconds := getattr(record, field):
            getattr(job, field).FromNanoseconds(int(seconds * 1e9))
    return job


def listed_job(record: JobRecord) -> pb.Job:
    """As :func:`job_to_pb`; of a record that no message can hold its id and state, so that it harms no list, and nobody who watches."""
    try:
        return job_to_pb(record)
    except (ValueError, TypeError, OverflowError) as error:
        _LOG.warning("job %s cannot be shown: %s", record.id, error)
        unshown = IngotError(ErrorCode.INTERNAL, "the record of this job cannot be shown")
        return pb.Job(id=record.id, state=_STATES[record.state], error=error_to_pb(unshown))


def verification_to_pb(found: Mapping[str, Any]) -> pb.Verification:
    """``found`` is what :func:`compiler_service.compiler.reference.verification.verify` answers."""
    names = ("state", "reason", "oracle", "sizes", "tolerance", "seconds", "oracle_seconds", "ratio", "emulator")
    figures = ("name", "max_abs_error", "max_rel_error")
    return pb.Verification(
        **{name: found[name] for name in names if name in found},
        outputs=[pb.OutputFigures(**{name: one[name] for name in figures}) for one in found.get("outputs", ())],
    )


def _target_to_pb(target: TargetRecord) -> pb.TargetJob:
    return pb.TargetJob(
        target=target.target,
        state=_STATES[target.state],
        stage=target.stage,
        done=target.done,
        total=target.total,
        artifact_key=target.artifact_key,
        cache_hit=target.cache_hit,
        error=error_to_pb(target.error) if target.error else None,
    )


def event_to_pb(event: Event, record: JobRecord | None) -> pb.JobEvent:
    """``record`` is the job as it is now, for events of kind ``state``."""
    message = pb.JobEvent(sequence=event.sequence, target=event.target)
    message.time.FromNanoseconds(int(event.time * 1e9))
    if event.kind == "progress":
        message.progress.CopyFrom(pb.Progress(**event.data))
    elif event.kind == "log":
        text, level = cleaned(str(event.data.get("text", ""))), str(event.data.get("level", ""))
        message.log.CopyFrom(pb.LogLine(level=level, text=text, stage=event.stage))
    elif record is not None:
        message.job.CopyFrom(listed_job(record))
    return message


def log_line_to_pb(line: LogEntry) -> pb.JobLogLine:
    message = pb.JobLogLine(target=line.target, stage=line.stage, level=line.level, text=cleaned(line.text))
    message.time.FromMicroseconds(round(line.time * 1e6))
    return message


def check_to_pb(report: Mapping[str, Any]) -> pb.CheckModelResponse:
    """``report`` is what :meth:`compiler_service.stages.process.Stages.check` answers."""
    issues = [error_to_pb(IngotError.from_dict(issue)) for issue in report["issues"]]
    return pb.CheckModelResponse(
        ok=not issues,
        ir_version=report.get("ir_version", 0),
        opsets=report.get("opsets", {}),
        producer=report.get("producer", ""),
        inputs=[_tensor_to_pb(name, text) for name, text in report.get("inputs", {}).items()],
        outputs=[_tensor_to_pb(name, text) for name, text in report.get("outputs", {}).items()],
        operators=report.get("operators", {}),
        issues=issues,
    )


def _tensor_to_pb(name: str, text: str) -> pb.TensorInfo:
    """``float32[batch, max(a, 2)]``: the commas between extents are those outside parentheses."""
    dtype, _, rest = text.partition("[")
    extents, depth = [""], 0
    for character in rest.removesuffix("]"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            extents.append("")
        else:
            extents[-1] += character
    return pb.TensorInfo(name=name, dtype=dtype, shape=[extent.strip() for extent in extents if extent.strip()])


def capabilities_to_pb(catalogue: Catalogue, max_model_bytes: int, public_key: bytes, key_id: str) -> pb.Capabilities:
    """``public_key`` is PEM."""
    first, newest = catalogue.opsets
    options = [
        pb.OptionInfo(name=own.name, type=own.type, default=own.default, description=own.description)
        for own in catalogue.options()
    ]
    return pb.Capabilities(
        compiler_version=catalogue.version,
        abi_version=ABI_VERSION,
        limits=dict(catalogue.limits()) | {"upload_bytes": max_model_bytes},
        options=options,
        operators=catalogue.operators(),
        min_opset=first,
        max_opset=newest,
        signing_key=public_key.decode(),
        signing_key_id=key_id,
    )


def targets_to_pb(catalogue: Catalogue) -> pb.ListTargetsResponse:
    return pb.ListTargetsResponse(
        targets=[
            pb.TargetInfo(
                name=own.name,
                description=own.description,
                triple=own.target.triple,
                cpu=own.target.cpu,
                features=own.target.features,
                vector_bits=own.target.vector_bits,
            )
            for own in catalogue.targets()
        ]
    )
