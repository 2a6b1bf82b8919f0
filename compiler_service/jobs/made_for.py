"""Whether an artifact is what a job asked for."""

from __future__ import annotations

from compiler_service.jobs.records import JobRecord
from shared_ir.artifact.value import Manifest
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import target_from_dict

_REPLACED = (
    "Perhaps the compiler was updated beneath a worker that runs: start the workers again, then submit the job again. "
    "If it happens again, report the model."
)
_FOREIGN = "Submit the job again. If it happens again, somebody else writes to the queue or the store."


def require_made_for(record: JobRecord, number: int, manifest: Manifest, key: str = "") -> None:
    """What is about to be signed or published must be what target ``number`` of a job asked for, made by nobody else's order.

    Where the ``key`` that follows from all that it was made with is known, it must have that one too.

    Raises:
        IngotError: INTERNAL; the compiler is not at fault: somebody wrote to the queue, to the store, or to the installed files.
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
            ErrorCode.INTERNAL,
            "an artifact is not of what the job asked for",
            field=", ".join(wrong),
            expected=str([wanted[name] for name in wrong])[:200],
            received=str([found[name] for name in wrong])[:200],
            remedy=_REPLACED if wrong == ["key"] else _FOREIGN,
        )
