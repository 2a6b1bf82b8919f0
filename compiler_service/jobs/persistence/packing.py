"""The record of a finished job as one short text: Redis keeps hundreds of thousands of them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

from shared_ir.foreign_json import foreign_json

MOST_BYTES = 4 << 20
"""Of the record of a job: one of 64 targets with all its options and errors."""
_ORDER = {
    "id": "",
    "name": "",
    "model_sha256": "",
    "external_data": {},
    "options": {
        "opt_level": 3,
        "shapes": {},
        "disabled_passes": [],
        "name": "",
        "tune": 0,
        "bundle": "",
        "winograd": True,
        "strassen": True,
        "denormals": False,
    },
    "labels": ["stable"],
    "created": 179,
    "targets": [
        {
            "target": "x86-64-v3",
            "spec": {
                "kind": "llvm",
                "triple": "x86_64-linux-gnu",
                "cpu": "x86-64-v3",
                "features": ["+avx2", "+fma", "+f16c", "+bmi2"],
                "vector_bits": 256,
                "vector_registers": 16,
                "masked": False,
                "l1": 32768,
                "l2": 262144,
                "l3": 8388608,
                "cores": 4,
                "memory_bytes": 8,
            },
            "request_key": "",
        }
    ],
}
_PROGRESS = {"stage": "", "passed": "", "leased": "0", "worker": "", "tries": "0", "resume_at": "0.0", "error": ""}
_JOB = {"state": "SUCCEEDED", "started": "179", "finished": "179", "version": "1", **_PROGRESS}
_TARGET = {
    "state": "SUCCEEDED",
    "done": "0",
    "total": "0",
    "artifact_key": "",
    "cache_hit": "1",
    "follows": "",
    **_PROGRESS,
}
_FIELDS = {"job": json.dumps(_ORDER), **_JOB, **{f"0.{name}": text for name, text in _TARGET.items()}, "seal": ""}
_COMMON = json.dumps(_FIELDS, separators=(",", ":")).encode()
"""What records say in common. It is part of the format: another text reads nothing that this one has packed."""


def pack(fields: Mapping[str, str]) -> str:
    compressor = zlib.compressobj(9, zdict=_COMMON)
    text = json.dumps(dict(fields), separators=(",", ":")).encode()
    return base64.b85encode(compressor.compress(text) + compressor.flush()).decode()


def unpack(text: str) -> dict[str, str]:
    """The inverse. Raises ValueError, zlib.error; also for what is larger than any record."""
    data = zlib.decompressobj(zdict=_COMMON).decompress(base64.b85decode(text), MOST_BYTES + 1)
    found = foreign_json(data) if len(data) <= MOST_BYTES else None
    if not isinstance(found, dict):
        raise ValueError("a packed record is none")
    return {str(name): str(value) for name, value in found.items()}
