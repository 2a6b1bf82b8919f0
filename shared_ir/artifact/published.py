"""The records by which an artifact repository keeps its models, as values and as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared_ir.artifact.oci import Descriptor, Entry, check_reference
from shared_ir.artifact.signature import SigningKey, Trust
from shared_ir.artifact.signed import corrupt, sign_document, verify_document
from shared_ir.artifact.value import Manifest
from shared_ir.digest import digest_hex
from shared_ir.errors import ErrorCode, IngotError

MEDIALABEL = "application/vnd.ingot.label.v1+json"
MEDIA_DELETION = "application/vnd.ingot.deletion.v1+json"
SCHEMA = 1
"""Of the records and documents of this module. Readers take no notice of fields that they do not know, and who replaces one keeps them."""
ABSENT = "0"
"""The etag of a label that is not there."""
BLOBS = "blobs/sha256/"
"""Before the digest in the name of a blob."""
LABEL = re.compile(r"[a-z][a-z0-9-]{0,62}")
ALL_VERSIONS = "all"
NEWEST_VERSION = "latest"
NO_LABELS = frozenset({ALL_VERSIONS, NEWEST_VERSION})
"""Words that mean something else where a label may stand: in policies of runtimes, and as the version of a request."""


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
class PublishedLabel:
    """A name that points at version ``number`` of a model, whose index has the digest ``index``.

    ``generation`` grows each time that the label is written; ``asked`` is when somebody asked for that, in microseconds since the epoch.
    ``moved`` is the generation in which it came to point where it points, ``by`` who asked for that; ``others`` are fields that this
    version does not know.
    """

    name: str
    label: str
    number: int
    index: str
    generation: int
    asked: int
    moved: int = 0
    by: str = ""
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def etag(self) -> str:
        """Names what the label points at, and since when."""
        return str(self.moved) if self.number else ABSENT


@dataclass(frozen=True)
class Deletion:
    """That versions ``first`` to ``number`` of a model were deleted, ``deleted`` seconds after the epoch, ``by`` somebody.

    ``indexes`` are the digests of the image indexes of those that were there.
    """

    name: str
    first: int
    number: int
    indexes: tuple[str, ...]
    deleted: float
    by: str = ""


def check_model_name(name: str) -> str:
    """Raises IngotError INVALID_ARGUMENT."""
    if len(name) > 128 or "/" in name:
        raise _bad_name("model", name)
    try:
        return check_reference(name)
    except IngotError as error:
        raise _bad_name("model", name) from error


def check_new_model_name(name: str) -> str:
    """As :func:`check_model_name`; and without ``@`` and ``+``, which a version before this one took: what a runtime serves is said as
    ``name@policy+policy``, and could not name such a model."""
    if "@" in name or "+" in name:
        raise _bad_name("model", name)
    return check_model_name(name)


def is_model_name(name: str) -> bool:
    """Whether :func:`check_model_name` takes it."""
    try:
        check_model_name(name)
    except IngotError:
        return False
    return True


def check_label(label: str) -> str:
    """Raises IngotError INVALID_ARGUMENT. What is set anew, :func:`check_new_label` looks at."""
    if not LABEL.fullmatch(label):
        raise _bad_name("label", label)
    return label


def check_new_label(label: str) -> str:
    """As :func:`check_label`; and none of :data:`NO_LABELS`, which were set by a version before this one at most."""
    if label in NO_LABELS:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"no label may be called {label!r}: runtimes take this word for the newest version, or for all of them",
            field="label",
            expected="another name, such as 'stable'",
            received=repr(label),
        )
    return check_label(label)


def artifact_path(key: str, staged: bool = False) -> str:
    return f"{'staged' if staged else 'artifacts'}/{key}.json"


def version_path(name: str, number: int) -> str:
    return f"models/{name}/versions/{number:08d}.json"


def label_path(name: str, label: str) -> str:
    return f"models/{name}/labels/{label}.json"


def deletion_path(name: str, number: int, first: int) -> str:
    """NOTE: deletions of many versions have a folder of their own, so that one of a single version is found without a list."""
    return f"models/{name}/{'deleted' if first == number else 'deleted-through'}/{number:08d}.json"


def bundle_path(name: str, first: int) -> str:
    return f"models/{name}/bundles/{first:08d}.json"


def claim_path(name: str, content: str) -> str:
    return f"models/{name}/contents/{content}.json"


def blob_key(digest: str) -> str:
    return f"{BLOBS}{digest_hex(digest)}"


def entry_to_dict(entry: Entry) -> dict[str, Any]:
    return {"schema": SCHEMA, "descriptor": entry.descriptor.to_dict(), "manifest": entry.manifest.to_dict()}


def version_to_dict(version: Version) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": version.name,
        "number": version.number,
        "created": version.created,
        "model_sha256": version.model_sha256,
        "publication": version.publication,
        "index": version.index.to_dict(),
        "targets": [manifest.to_dict() for manifest in version.targets],
    }


def label_document(label: PublishedLabel, signer: SigningKey) -> bytes:
    """What lies under :func:`label_path`. A label that was taken away is one of version 0: its file stays, so that an older
    one cannot be put back."""
    fields = {
        "schema": SCHEMA,
        "model": label.name,
        "label": label.label,
        "version": label.number,
        "index": label.index,
        "generation": label.generation,
        "asked": label.asked,
        "moved": label.moved,
        "by": label.by,
    }
    return sign_document(dict(label.others) | {"mediaType": MEDIALABEL, "annotations": {}} | fields, signer)


_LABEL_FIELDS = {
    "mediaType",
    "annotations",
    "schema",
    "model",
    "label",
    "version",
    "index",
    "generation",
    "asked",
    "moved",
    "by",
}


def read_label(data: bytes, trust: Trust, name: str, label: str) -> PublishedLabel:
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
    if (document.get("model"), document.get("label")) != (name, label):
        received = f"{document.get('label')!r} of {document.get('model')!r}"
        raise corrupt("a label lies under the name of another", expected=what, received=received)
    number, generation, asked = (counted(document.get(key), what) for key in ("version", "generation", "asked"))
    moved = counted(document.get("moved", generation), what)  # older services do not write it
    others = {key: value for key, value in document.items() if key not in _LABEL_FIELDS}
    index, by = str(document.get("index", "")), str(document.get("by", ""))
    return PublishedLabel(name, label, number, index, generation, asked, moved, by, others)


def deletion_document(deletion: Deletion, signer: SigningKey) -> bytes:
    """What lies under :func:`deletion_path` of the last version that was deleted."""
    fields = {
        "schema": SCHEMA,
        "model": deletion.name,
        "first": deletion.first,
        "last": deletion.number,
        "indexes": list(deletion.indexes),
        "deleted": deletion.deleted,
        "by": deletion.by,
    }
    return sign_document({"mediaType": MEDIA_DELETION, "annotations": {}} | fields, signer)


def read_deletion(data: bytes, trust: Trust, name: str, number: int) -> Deletion:
    """The inverse of :func:`deletion_document`, for the deletion whose last version is ``number``.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT.
    """
    what = f"the deletion of version {number} of model {name!r}"
    document = verify_document(data, trust, what, MEDIA_DELETION)
    first, last = (counted(document.get(key), what) for key in ("first", "last"))
    indexes, deleted = document.get("indexes"), document.get("deleted")
    if (document.get("model"), last) != (name, number) or not 0 < first <= last:
        raise corrupt("a deletion lies under the name of another", expected=what, received=str(document.get("model")))
    if not isinstance(indexes, list) or not isinstance(deleted, int | float):
        raise corrupt(f"{what} is malformed")
    return Deletion(name, first, last, tuple(map(str, indexes)), float(deleted), str(document.get("by", "")))


def counted(number: Any, what: str) -> int:
    """``number`` where it is a whole number of 0 to 2^63 - 1. Raises IngotError ARTIFACT_CORRUPT."""
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise corrupt(f"{what} is malformed", received=repr(number))
    return number


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
