"""The record of a finished job as one short text: Redis keeps hundreds of thousands of them."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

_COMMON = (
    '{"job":"{\\"id\\": \\"\\", \\"name\\": \\"\\", \\"model_sha256\\": \\"\\", \\"external_data\\": {}, \\"options\\": {\\"opt_level\\": 3, '
    '\\"shapes\\": {}, \\"disabled_passes\\": [], \\"name\\": \\"\\", \\"tune\\": 0, \\"bundle\\": \\"\\", \\"winograd\\": true, \\"strassen\\": true, '
    '\\"denormals\\": false}, \\"labels\\": [\\"stable\\"], \\"created\\": 179, \\"targets\\": [{\\"target\\": \\"x86-64-v3\\", \\"spec\\": '
    '{\\"kind\\": \\"llvm\\", \\"triple\\": \\"aarch64-linux-gnu\\", \\"triple\\": \\"x86_64-linux-gnu\\", \\"cpu\\": \\"x86-64-v3\\", \\"features\\": '
    '[\\"+avx2\\", \\"+fma\\", \\"+f16c\\", \\"+bmi2\\"], \\"vector_bits\\": 256, \\"vector_registers\\": 16, \\"masked\\": false, \\"l1\\": 32768, '
    '\\"l2\\": 262144, \\"l3\\": 8388608, \\"cores\\": 4, \\"memory_bytes\\": 8}, \\"request_key\\": \\"\\"}]}","state":"SUCCEEDED","started":"179",'
    '"finished":"179","version":"1","stage":"","passed":"","leased":"0","worker":"","tries":"0","resume_at":"0.0","error":"",'
    '"0.state":"SUCCEEDED","0.done":"0","0.total":"0","0.artifact_key":"","0.cache_hit":"1","0.follows":"","0.stage":"","0.passed":"",'
    '"0.leased":"0","0.worker":"","0.tries":"0","0.resume_at":"0.0","0.error":"","seal":""}'
).encode()
"""What records say in common. It is part of the format: another text reads nothing that this one has packed."""


def pack(fields: Mapping[str, str]) -> str:
    compressor = zlib.compressobj(9, zdict=_COMMON)
    text = json.dumps(dict(fields), separators=(",", ":")).encode()
    return base64.b85encode(compressor.compress(text) + compressor.flush()).decode()


def unpack(text: str) -> dict[str, str]:
    """The inverse. Raises ValueError, zlib.error."""
    found = json.loads(zlib.decompressobj(zdict=_COMMON).decompress(base64.b85decode(text)))
    return {str(name): str(value) for name, value in found.items()}
