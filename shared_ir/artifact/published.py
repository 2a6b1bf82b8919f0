"""The records by which an artifact repository keeps its models, as values and as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from shared_ir.artifact.oci import Descriptor, Entry, check_reference
from shared_ir.artifact.signature import SigningKey, Trust
from shared_ir.artifact.signed import corrupt, sign_document, verify_document
from shared_ir.artifact.value import Manifest
from shared_ir.digest import digest_hex
from shared_ir.errors import ErrorCode, IngotError

MEDIALABEL = "application/vnd.ingot.label.v1+json"
LABEL = re.compile(r"[a-z][a-z0-9-]{0,62}")


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


@dataclass(frozen=True)
class Label:
    """A name that points at version ``number`` of a model, whose index has the digest ``index``.

    ``generation`` grows each time that the label is moved; ``asked`` is when somebody asked for that, in microseconds since the epoch.
    """

    name: str
    label: str
    number: int
    index: str
    generation: int
    asked: int


def check_model_name(name: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if len(name) > 128 or "/" in name:
        raise _bad_name("model", name)
    try:
        return check_reference(name)
    except IngotError as error:
        raise _bad_name("model", name) from error


def is_model_name(name: str) -> bool:
    """Whether :func:`check_model_name` takes it."""
    try:
        check_model_name(name)
    except IngotError:
        return False
    return True


def check_label(label: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if not LABEL.fullmatch(label):
        raise _bad_name("label", label)
    return label


def artifact_path(key: str, staged: bool = False) -> str:
    return f"{'staged' if staged else 'artifacts'}/{key}.json"


def version_path(name: str, number: int) -> str:
    return f"models/{name}/versions/{number:08d}.json"


def label_path(name: str, label: str) -> str:
    return f"models/{name}/labels/{label}.json"


def blob_key(digest: str) -> str:
    return f"blobs/sha256/{digest_hex(digest)}"


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    return {"descriptor": entry.descriptor.to_dict(), "manifest": entry.manifest.to_dict()}


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


def label_document(label: Label, signer: SigningKey) -> bytes:
    """What lies under :func:`label_path`. A label that was taken away is one of version 0: its file stays, so that an older
    one cannot be put back."""
    fields = {
        "model": label.name,
        "label": label.label,
        "version": label.number,
        "index": label.index,
        "generation": label.generation,
        "asked": label.asked,
    }
    return sign_document({"mediaType": MEDIALABEL, "annotations": {}} | fields, signer)


def read_label(data: bytes, trust: Trust, name: str, label: str) -> Label:
    """The inverse of :func:`label_document`, for this label of this model.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT.
    """
    what = f"label {label!r} of model {name!r}"
    try:
        document = verify_document(data, trust, what, MEDIALABEL)
    except IngotError as error:
        if error.code is not ErrorCode.ARTIFACT_UNTRUSTED:
            raise
        raise replace(error, remedy=f"Set it again: ingot models {name} --set-label {label}=VERSION.") from error
    numbers = [document.get(field) for field in ("version", "generation", "asked")]
    if (document.get("model"), document.get("label")) != (name, label):
        received = f"{document.get('label')!r} of {document.get('model')!r}"
        raise corrupt("a label lies under the name of another", expected=what, received=received)
    if any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers):
        raise corrupt(f"{what} is malformed", received=str(numbers))
    number, generation, asked = (int(number) for number in numbers)  # type: ignore[arg-type]  # none is missing
    return Label(name, label, number, str(document.get("index", "")), generation, asked)


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
