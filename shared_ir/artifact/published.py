"""The records by which an artifact repository keeps its models, as values and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared_ir.artifact.oci import MEDIA_INDEX, Descriptor, Entry, check_reference, corrupt
from shared_ir.artifact.value import Manifest
from shared_ir.errors import ErrorCode, IngotError

_LABEL = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class Version:
    """A published version of a model. ``created`` is in seconds since the epoch, ``publication`` the job's id."""

    name: str
    number: int
    created: float
    model_sha256: str
    publication: str
    index: Descriptor
    targets: tuple[Manifest, ...]


def check_model_name(name: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if len(name) > 128 or "/" in name:
        raise _bad_name("model", name)
    try:
        return check_reference(name)
    except IngotError as error:
        raise _bad_name("model", name) from error


def check_label(label: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if not _LABEL.fullmatch(label):
        raise _bad_name("label", label)
    return label


def artifact_path(key: str, staged: bool = False) -> str:
    return f"{'staged' if staged else 'artifacts'}/{key}.json"


def version_path(name: str, number: int) -> str:
    return f"models/{name}/versions/{number:08d}.json"


def label_path(name: str, label: str) -> str:
    return f"models/{name}/labels/{label}.json"


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    return {"descriptor": entry.descriptor.to_dict(), "manifest": entry.manifest.to_dict()}


def entry_from_dict(data: Mapping[str, Any]) -> Entry:
    return Entry(Descriptor.from_dict(data.get("descriptor")), Manifest.from_dict(data.get("manifest", {})))


def version_to_dict(version: Version) -> dict[str, Any]:
    return {
        "name": version.name,
        "number": version.number,
        "created": version.created,
        "model_sha256": version.model_sha256,
        "publication": version.publication,
        "index": version.index.to_dict(),
        "targets": [manifest.to_dict() for manifest in version.targets],
    }


def version_from_dict(data: Mapping[str, Any]) -> Version:
    try:
        index = Descriptor.from_dict(data["index"])
        if index.media_type != MEDIA_INDEX:
            raise corrupt("a version's record points at something that is not an index", received=index.media_type)
        targets = tuple(Manifest.from_dict(manifest) for manifest in data["targets"])
        return Version(**{**data, "index": index, "targets": targets})
    except (KeyError, TypeError) as error:
        raise corrupt("a version's record is malformed", received=json.dumps(data, default=str)) from error


def _bad_name(what: str, name: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"not a valid name for a {what}",
        field=what,
        expected="lower-case letters, digits and '-'"
        if what == "label"
        else "letters and digits, separated by single '-', '.' or '_', at most 128",
        received=repr(name)[:200],
    )
