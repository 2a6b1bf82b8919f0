"""Job records as Redis hashes of strings.

What never changes is one JSON field, ``job``; what changes has a field of its own (``state``, ``0.stage``, ``1.done``),
so that workers on different targets never write over each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compiler_service.jobs.records import JobRecord, JobState, Source, TargetRecord
from shared_ir.errors import IngotError

SECONDS = "seconds."
"""Prefix of the fields that hold seconds by stage."""

_TARGET_FIELDS = ("state", "stage", "done", "total", "artifact_key", "cache_hit", "follows", "leased", "error")
_JOB_FIELDS = ("state", "started", "finished", "version", "stage", "leased", "error")


def encode(record: JobRecord) -> dict[str, str]:
    fixed = {
        "id": record.id,
        "name": record.name,
        "model_sha256": record.source.model_sha256,
        "external_data": dict(record.source.external_data),
        "options": dict(record.options),
        "labels": list(record.labels),
        "created": record.created,
        "namespace": record.source.namespace,
        "user": record.user,
        "trace": record.trace,
        "running_stages": record.running_stages,
        "targets": [{"target": t.target, "spec": dict(t.spec), "request_key": t.request_key} for t in record.targets],
    }
    fields = {"job": json.dumps(fixed)} | encode_changes({name: getattr(record, name) for name in _JOB_FIELDS})
    for number, target in enumerate(record.targets):
        fields |= encode_changes({name: getattr(target, name) for name in _TARGET_FIELDS}, number)
    return fields


def encode_changes(changes: Mapping[str, Any], target: int | None = None) -> dict[str, str]:
    """Fields for changed attributes of the job, or of one of its targets."""
    prefix = "" if target is None else f"{target}."
    return {prefix + name: _to_text(value) for name, value in changes.items()}


def decode(fields: Mapping[str, str]) -> JobRecord:
    fixed = json.loads(fields["job"])
    seconds = {name.removeprefix(SECONDS): float(text) for name, text in fields.items() if name.startswith(SECONDS)}
    return JobRecord(
        id=fixed["id"],
        name=fixed["name"],
        source=Source(fixed["model_sha256"], fixed["external_data"], fixed.get("namespace", "")),
        options=fixed["options"],
        targets=tuple(_target(fields, number, data) for number, data in enumerate(fixed["targets"])),
        created=fixed["created"],
        labels=tuple(fixed["labels"]),
        state=JobState(fields["state"]),
        started=float(fields["started"]),
        finished=float(fields["finished"]),
        version=int(fields["version"]),
        stage=fields["stage"],
        leased=fields["leased"] == "1",
        error=_error(fields["error"]),
        stage_seconds=seconds,
        user=fixed.get("user", ""),
        trace=fixed.get("trace", ""),
        running_stages=int(fixed.get("running_stages", 0)),
    )


def _target(fields: Mapping[str, str], number: int, fixed: Mapping[str, Any]) -> TargetRecord:
    own = {name: fields[f"{number}.{name}"] for name in _TARGET_FIELDS}
    return TargetRecord(
        target=fixed["target"],
        spec=fixed["spec"],
        request_key=fixed["request_key"],
        state=JobState(own["state"]),
        stage=own["stage"],
        done=int(own["done"]),
        total=int(own["total"]),
        artifact_key=own["artifact_key"],
        cache_hit=own["cache_hit"] == "1",
        follows=own["follows"],
        leased=own["leased"] == "1",
        error=_error(own["error"]),
    )


def _error(text: str) -> IngotError | None:
    return IngotError.from_dict(json.loads(text)) if text else None


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "1" if value else "0"
        case IngotError():
            return json.dumps(value.to_dict())
    return str(value)
