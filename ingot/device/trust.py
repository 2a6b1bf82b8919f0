"""Whose orders a device runs."""

from __future__ import annotations

from pathlib import Path

from shared_ir.artifact.signature import Trust, TrustFolder, TrustStore, read_public
from shared_ir.errors import ErrorCode, IngotError


def trust_at(path: Path) -> Trust:
    """The key in a file, or those in a folder as they are whenever an order comes.

    Raises:
        IngotError: NOT_FOUND; INVALID_ARGUMENT, it is no key.
    """
    if path.is_dir():
        return TrustFolder(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise IngotError(
            ErrorCode.NOT_FOUND,
            f"the key that orders are trusted by cannot be read: {error.strerror}",
            field=str(path),
            remedy="Write it where the tuner is, with `ingot device key --out FILE`, and bring it here.",
        ) from error
    return TrustStore.of([read_public(data, str(path))])
