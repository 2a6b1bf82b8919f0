"""Digests and the canonical bytes they are taken over."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shared_ir.errors import ErrorCode, IngotError

TREE_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes per leaf of :func:`tree_digest`."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_hex(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of(data: bytes | memoryview) -> str:
    """OCI digest: ``sha256:`` and 64 hexadecimal digits."""
    return f"sha256:{sha256_hex(data)}"


def digest_of_file(path: Path) -> str:
    """OCI digest of a file, read in pieces."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def source_digest(model: str, external_data: Mapping[str, str]) -> str:
    """Names a model and its external data by the hexadecimal sha256 of each file; that of the model when it is alone."""
    if not external_data:
        return model
    return sha256_hex(canonical_json({"model": model, "external_data": dict(external_data)}))


def digest_hex(digest: str) -> str:
    """The hexadecimal part of an OCI digest.

    Raises:
        IngotError: ARTIFACT_CORRUPT, when ``digest`` is not a lower-case sha256 digest.
    """
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise IngotError(
            ErrorCode.ARTIFACT_CORRUPT,
            "a blob is named by something that is not a sha256 digest",
            expected="sha256:<64 hexadecimal digits>",
            received=repr(digest)[:100],
        )
    return digest.removeprefix("sha256:")


def tree_digest(data: memoryview, threads: int = 4) -> str:
    """sha256 over the sha256 of each 4 MiB chunk, so that large weights are hashed on several cores at once."""
    size = len(data)
    leaf: Callable[[int], bytes] = lambda start: hashlib.sha256(data[start : start + TREE_CHUNK_BYTES]).digest()
    starts = range(0, size, TREE_CHUNK_BYTES)
    if len(starts) <= 1:
        leaves = [leaf(start) for start in starts]
    else:
        with ThreadPoolExecutor(max_workers=threads) as pool:
            leaves = list(pool.map(leaf, starts))
    return tree_of(size, leaves)


def tree_of(size: int, leaves: Iterable[bytes]) -> str:
    """:func:`tree_digest` of ``size`` bytes whose chunks have these digests."""
    return digest_of(size.to_bytes(8, "little") + b"".join(leaves))
