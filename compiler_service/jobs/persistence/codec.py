"""Job records as Redis hashes of strings.

What never changes is one JSON field, ``job``; what changes has a field of its own (``state``, ``0.stage``, ``1.done``),
so that workers on different targets never write over each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compiler_service.jobs.records import TARGET_STAGES, JobRecord, JobStage, JobState, TargetRecord, UploadedModel
from shared_ir.errors import IngotError
from shared_ir.foreign_json import foreign_json
from shared_ir.numerals import whole_number

SECONDS = "seconds."
"""Prefix of the fields that hold seconds by stage."""

_PROGRESS_FIELDS = ("stage", "passed", "leased", "worker", "tries", "resume_at", "error")
"""What a job and each of its targets have alike."""
_RARE_FIELDS = ("user", "trace", "running_stages", "deadline", "priority")
"""Of orders that say so."""
_TARGET_FIELDS = ("state", "done", "total", "artifact_key", "cache_hit", "follows", *_PROGRESS_FIELDS)
_JOB_FIELDS = ("state", "started", "finished", "version", *_PROGRESS_FIELDS)


def encode(record: JobRecord) -> dict[str, str]:
    fixed: dict[str, Any] = {
        "id": record.id,
        "name": record.name,
        "model_sha256": record.source.model_sha256,
        "external_data": dict(record.source.external_data),
        "options": dict(record.options),
        "labels": list(record.labels),
        "created": record.created,
        "targets": [{"target": t.target, "spec": dict(t.spec), "request_key": t.request_key} for t in record.targets],
    }
    fixed |= {name: getattr(record, name) for name in _RARE_FIELDS if getattr(record, name)}
    fixed |= {"namespace": record.source.namespace} if record.source.namespace else {}
    fields = {"job": json.dumps(fixed)} | encode_changes({name: getattr(record, name) for name in _JOB_FIELDS})
    for number, target in enumerate(record.targets):
        fields |= encode_changes({name: getattr(target, name) for name in _TARGET_FIELDS}, number)
    return fields


def encode_changes(changes: Mapping[str, Any], target: int | None = None) -> dict[str, str]:
    """Fields for changed attributes of the job, or of one of its targets."""
    prefix = "" if target is None else f"{target}."
    return {prefix + name: _to_text(value) for name, value in changes.items()}


def decode(fields: Mapping[str, str]) -> JobRecord:
    """The record; what a version before or after this one wrote is read as far as it is known here."""
    fixed = foreign_json(fields["job"])
    seconds = {name.removeprefix(SECONDS): float(text) for name, text in fields.items() if name.startswith(SECONDS)}
    targets = tuple(_target(fields, f"{number}.", data) for number, data in enumerate(fixed["targets"]))
    progress = _progress(fields, "")
    if "passed" not in fields and any(target.passed for target in targets):
        progress |= {"passed": JobStage.INGEST.value}
    return JobRecord(
        id=fixed["id"],
        name=fixed["name"],
        source=UploadedModel(fixed["model_sha256"], fixed["external_data"], fixed.get("namespace", "")),
        options=fixed["options"],
        targets=targets,
        created=fixed["created"],
        labels=tuple(fixed["labels"]),
        state=JobState(fields["state"]),
        started=float(fields["started"]),
        finished=float(fields["finished"]),
        version=int(fields["version"]),
        stage_seconds=seconds,
        user=fixed.get("user", ""),
        trace=fixed.get("trace", ""),
        running_stages=int(fixed.get("running_stages", 0)),
        deadline=float(fixed.get("deadline", 0)),
        priority=int(fixed.get("priority", 0)),
        number=int(fields.get("number", 0)),
        **progress,
    )


def namespace_of(fields: Mapping[str, str]) -> str:
    """Of a record, which need not make sense otherwise."""
    try:
        return str(foreign_json(fields["job"]).get("namespace", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""


def _target(fields: Mapping[str, str], prefix: str, fixed: Mapping[str, Any]) -> TargetRecord:
    return TargetRecord(
        target=fixed["target"],
        spec=fixed["spec"],
        request_key=fixed["request_key"],
        state=JobState(fields[f"{prefix}state"]),
        done=_steps(fields[f"{prefix}done"]),
        total=_steps(fields[f"{prefix}total"]),
        artifact_key=fields[f"{prefix}artifact_key"],
        cache_hit=fields[f"{prefix}cache_hit"] == "1",
        follows=fields[f"{prefix}follows"],
        **_progress(fields, prefix),
    )


def _steps(text: str) -> int:
    """0 for what no message could hold."""
    return whole_number(text) or 0


def _progress(fields: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """The attributes of ``_PROGRESS_FIELDS``. Records without ``passed`` tell it by the stage that they are in."""
    stage = fields[f"{prefix}stage"]
    return {
        "stage": stage,
        "passed": fields.get(f"{prefix}passed", _before(stage) if prefix else ""),
        "leased": fields[f"{prefix}leased"] == "1",
        "worker": fields.get(f"{prefix}worker", ""),
        "tries": int(fields.get(f"{prefix}tries", 0)),
        "resume_at": float(fields.get(f"{prefix}resume_at", 0)),
        "began": float(fields.get(f"{prefix}began", 0)),
        "error": _error(fields[f"{prefix}error"]),
    }


def _before(stage: str) -> str:
    """The stage before that of a target."""
    order = [JobStage.INGEST, *TARGET_STAGES]
    return order[order.index(JobStage(stage)) - 1].value if stage in order[1:] else ""


def _error(text: str) -> IngotError | None:
    return IngotError.from_dict(foreign_json(text)) if text else None


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "1" if value else "0"
        case IngotError():
            return json.dumps(value.to_dict())
    return str(value)
