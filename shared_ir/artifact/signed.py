"""Signed JSON documents: an ed25519 signature in two annotations, over the canonical JSON of the rest.

What a document is for is said inside it (``mediaType``), so one of a kind cannot stand in for one of another.
"""

from __future__ import annotations

from typing import Any

from shared_ir.artifact.signature import Signature, SigningKey, Trust
from shared_ir.digest import canonical_json
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.foreign_json import parse_foreign

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
"""Largest index, manifest, config, label or record in bytes."""

_SIGNATURE = "io.ingot.signature"
_SIGNATURE_KEY = "io.ingot.signature.key"
_DOMAIN = b"ingot signed document, version 1\n"


def corrupt(message: str, *, expected: str = "", received: str = "", field: str = "") -> IngotError:
    return IngotError(
        ErrorCode.ARTIFACT_CORRUPT,
        message,
        expected=expected,
        received=received[:200],
        field=field,
        remedy="Fetch the artifact again from its source, or compile it again.",
    )


def parse_document(data: bytes, what: str) -> dict[str, Any]:
    """Raises IngotError ARTIFACT_CORRUPT unless ``data`` is a JSON object without duplicate keys."""
    try:
        document = parse_foreign(data, _unique)
    except ValueError as error:
        raise corrupt(f"{what} is not JSON") from error
    if not isinstance(document, dict):
        raise corrupt(f"{what} is not a JSON object")
    return document


def sign_document(document: dict[str, Any], signer: SigningKey) -> bytes:
    """Canonical JSON of ``document``, which has ``mediaType`` and ``annotations``, with its signature."""
    signature = signer.sign(_DOMAIN + canonical_json(document))
    annotations = document["annotations"] | {_SIGNATURE: signature.value, _SIGNATURE_KEY: signature.key_id}
    return canonical_json(document | {"annotations": annotations})


def verify_document(data: bytes, trust: Trust, what: str, media_type: str) -> dict[str, Any]:
    """The document in ``data``, which a trusted key signed as one of ``media_type``.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT.
    """
    document = parse_document(data, what)
    annotations = document.get("annotations") or {}
    if not is_string_map(annotations) or not {_SIGNATURE, _SIGNATURE_KEY} <= set(annotations):
        raise IngotError(
            ErrorCode.ARTIFACT_UNTRUSTED,
            f"{what} is not signed",
            remedy="Only what a trusted compiler made and signed is taken.",
        )
    rest = {name: text for name, text in annotations.items() if name not in (_SIGNATURE, _SIGNATURE_KEY)}
    trust.verify(_payload(document | {"annotations": rest}, what), _signature(annotations))
    if document.get("mediaType") != media_type:
        raise corrupt(f"{what} is malformed", expected=media_type, received=str(document.get("mediaType")))
    return document


def is_string_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _signature(annotations: dict[str, str]) -> Signature:
    return Signature(annotations[_SIGNATURE_KEY], annotations[_SIGNATURE])


def _payload(document: dict[str, Any], what: str) -> bytes:
    try:
        return _DOMAIN + canonical_json(document)
    except (ValueError, RecursionError) as error:  # NaN, a lone surrogate
        raise corrupt(f"{what} holds what canonical JSON does not") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("duplicate key")
    return fields
