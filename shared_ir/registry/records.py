"""What records point at, read without asking who signed it: what may be needed is kept, whoever is trusted at the moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared_ir.artifact.oci import MANIFEST, MEDIA_INDEX
from shared_ir.artifact.published import blob_key, version_path
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, corrupt, parse_document
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.protocol import ObjectStore


def index_digest(store: ObjectStore, name: str, number: int) -> str:
    """Digest of the index that the record of a version points at; empty where there is no such record, or none that can be read."""
    try:
        return pointed_at(read_record(store, version_path(name, number)), "index")
    except IngotError as error:
        if error.code is ErrorCode.UNAVAILABLE:
            raise
        return ""


def read_record(store: ObjectStore, key: str) -> dict[str, Any]:
    """Raises IngotError NOT_FOUND, ARTIFACT_CORRUPT, UNAVAILABLE."""
    return parse_document(store.get(key, MAX_DOCUMENT_BYTES), key)


def pointed_at(record: dict[str, Any], field: str) -> str:
    """The digest in a descriptor of a record. Raises IngotError ARTIFACT_CORRUPT."""
    descriptor = record.get(field)
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str):
        raise corrupt("a record points at nothing", field=field)
    return digest


def below(store: ObjectStore, digest: str) -> Iterator[str]:
    """A signed index or manifest, and every blob under it.

    Raises:
        IngotError: ARTIFACT_CORRUPT, NOT_FOUND, UNAVAILABLE.
    """
    yield digest
    document = read_record(store, blob_key(digest))
    if document.get("mediaType") == MEDIA_INDEX:
        for item in _items(document, "manifests"):
            yield from below(store, pointed_at({"entry": item}, "entry"))
        return
    yield pointed_at(document, "config")
    for item in _items(document, "layers"):
        yield pointed_at({"layer": item}, "layer")


def keys_of(store: ObjectStore, digest: str) -> Iterator[str]:
    """Artifact keys of the targets that an index lists. Raises IngotError as :func:`below`."""
    for item in _items(read_record(store, blob_key(digest)), "manifests"):
        annotations = item.get("annotations") if isinstance(item, dict) else None
        text = annotations.get(MANIFEST) if isinstance(annotations, dict) else None
        yield str(parse_document(str(text).encode(), "the artifact's manifest annotation").get("key", ""))


def _items(document: dict[str, Any], field: str) -> list[Any]:
    items = document.get(field)
    if not isinstance(items, list):
        raise corrupt("a document of an artifact is malformed", field=field)
    return items
