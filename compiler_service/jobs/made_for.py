"""Whether an artifact is what a job asked for."""

from __future__ import annotations

from compiler_service.jobs.records import JobRecord
from shared_ir.artifact.value import Manifest
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import target_from_dict


def require_made_for(record: JobRecord, number: int, manifest: Manifest, key: str = "") -> None:
    """What is about to be signed or published must be what target ``number`` of a job asked for, made by nobody else's order.

    Where the ``key`` that follows from all that it was made with is known, it must have that one too.

    Raises:
        IngotError: COMPILER_FAULT.
    """
    target = target_from_dict(record.targets[number].spec)
    wanted = {
        "model_sha256": record.source.digest,
        "triple": target.triple,
        "cpu": target.cpu,
        "features": list(target.features),
        "options": dict(record.options),
    }
    if key:
        wanted["key"] = key
    found = manifest.to_dict()
    wrong = [name for name, value in wanted.items() if canonical_json(found[name]) != canonical_json(value)]
    if wrong:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            "an artifact is not of what the job asked for",
            field=", ".join(wrong),
            expected=str([wanted[name] for name in wrong])[:200],
            received=str([found[name] for name in wrong])[:200],
            remedy="Submit the job again. If it happens again, somebody writes to the queue or the store.",
        )
