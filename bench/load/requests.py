"""What the clients of :mod:`bench.serving` send, one tensor in each of three ways, and what must come back."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass

GRPC, BINARY, JSON = "grpc", "http binary", "http json"
KINDS = (GRPC, BINARY, JSON)
MODEL, SHAPE = "id1x16", (1, 16)
Values = tuple[float, ...]
VALUES: Values = tuple(index / 4 for index in range(16))
"""Numbers that a float32 holds, as many as the tensor has."""


@dataclass(frozen=True)
class Question:
    """``data`` is a whole request, but for HTTP/2's frames; ``is_right`` says whether the body of an answer is the identity's."""

    data: bytes
    is_right: Callable[[bytes], bool]


def question(kind: str, values: Values = VALUES) -> Question:
    """Raises KeyError: no such kind."""
    return {GRPC: _grpc, BINARY: _binary, JSON: _json}[kind](values)


def _grpc(values: Values) -> Question:
    """``ModelInferRequest`` by hand (protobuf: fields 1, 5 and 7), so that clients need no stubs."""
    raw = _raw(values)
    tensor = _field(1, b"x") + _field(2, b"FP32") + _field(3, bytes(SHAPE))
    message = _field(1, MODEL.encode()) + _field(5, tensor) + _field(7, raw)
    return Question(message, lambda body: raw in body)


def _binary(values: Values) -> Question:
    raw = _raw(values)
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": list(SHAPE),
        "parameters": {"binary_data_size": len(raw)},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = (f"Inference-Header-Content-Length: {len(head)}", "Content-Type: application/octet-stream")
    return Question(_post(head + raw, *lines), lambda body: body.endswith(raw))


def _json(values: Values) -> Question:
    def is_right(body: bytes) -> bool:
        data = json.loads(body)["outputs"][0]["data"]
        return tuple(data[0] if len(data) == 1 else data) == values

    tensor = {"name": "x", "datatype": "FP32", "shape": list(SHAPE), "data": [values]}
    return Question(_post(json.dumps({"inputs": [tensor]}).encode(), "Content-Type: application/json"), is_right)


def _raw(values: Values) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _post(body: bytes, *lines: str) -> bytes:
    head = (f"POST /v2/models/{MODEL}/infer HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *lines)
    return "\r\n".join((*head, "", "")).encode() + body


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes, shorter than 128."""
    return bytes((number << 3 | 2, len(value))) + value
