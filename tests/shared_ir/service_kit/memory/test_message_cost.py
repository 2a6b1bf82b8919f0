"""Parsing takes at most what was counted of a message before: random bytes of every message that the services take."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.inference.v2 import grpc_service_pb2, grpc_service_pb2_grpc
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2, compiler_pb2_grpc
from shared_ir.service_kit.calls.lanes import Lane
from shared_ir.service_kit.memory.message_cost import MOST_FIELDS, cost_of, message_bytes
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.rpc.server import RpcServer

FILES = (grpc_service_pb2, compiler_pb2, health_pb2, reflection_pb2)
INFER: Any = grpc_service_pb2.ModelInferRequest
GROUP = b"\xc3\x3e\xc4\x3e"
"""Field 1000: the start and the end of a group, which parsers pass over."""


def requests() -> Iterator[Any]:
    """The classes of all messages that clients send."""
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield getattr(file, method.input_type.name)


KINDS: dict[str, Any] = {str(kind.DESCRIPTOR.full_name): kind for kind in requests()}


class _Malloc(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    ]


def allocated() -> int:
    """Bytes that the C library has given out."""
    found = _mallinfo()
    return int(found.uordblks + found.hblkhd)


_mallinfo: Any = ctypes.CDLL(None).mallinfo2
_mallinfo.restype = _Malloc


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def with_length(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


class Wire:
    """Random fields of a message: known ones and others, packed and not, groups, wrong kinds, now and then one thing very often."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def message(self, kind: Descriptor, depth: int = 0) -> bytes:
        pick = self._random
        parts = [self._field(kind, depth) for _ in range(pick.choice((0, 1, 2, 3, 8)))]
        if depth < 3 and pick.random() < 0.5:
            often = self._field(kind, depth + 1)
            parts.append(often * min(pick.choice((1, 30, 300, 3000, 20_000)), (1 << 18) // (len(often) or 1)))
        pick.shuffle(parts)
        return GROUP * (depth == 0 and pick.random() < 0.2) + b"".join(parts)

    def _field(self, kind: Descriptor, depth: int) -> bytes:
        pick = self._random
        chance = pick.random()
        if chance < 0.02:
            return GROUP if pick.random() < 0.5 else GROUP[:2] + self.message(kind, 4) + GROUP[2:]
        if chance < 0.1 or not kind.fields:
            return self._value(
                pick.choice((1, 2, 19, 1000)), pick.choice((0, 1, 2, 5)), b"\x00" * pick.choice((0, 3, 90))
            )
        field = pick.choice(list(kind.fields))
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            inner = self.message(field.message_type, depth + 1) if depth < 6 and field.message_type else b""
            return with_length(field.number, inner)
        return self._value(
            field.number, pick.choice((0, 1, 2, 2, 5)), bytes([pick.randrange(128)]) * pick.choice((0, 1, 4, 8, 800))
        )

    def _value(self, number: int, wire: int, data: bytes) -> bytes:
        if wire == 2:
            return with_length(number, data)
        return (
            varint(number << 3 | wire) + {0: varint(self._random.choice((0, 1, 2**63))), 1: bytes(8), 5: bytes(4)}[wire]
        )


def taken(kind: Any, data: bytes) -> int:
    """Bytes that the message of ``data`` takes beside them; 0 where they are none."""
    before = allocated()
    try:
        message = kind.FromString(data)
    except DecodeError:
        return 0
    found = allocated() - before
    del message
    return found


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_parsing_takes_at_most_what_was_counted(kind: Any) -> None:
    counted = 0
    for seed in range(25):
        data = Wire(seed).message(kind.DESCRIPTOR)
        try:
            count = message_bytes(kind.DESCRIPTOR, data)
        except IngotError:
            continue
        counted += 1
        assert taken(kind, data) + len(data) <= count, (seed, len(data))
    assert counted > 10


@pytest.mark.parametrize(
    "often",
    [b"\x2a\x00", b"\x2a\x02\x2a\x00", b"\x32\x00", b"\x22\x00", b"\x3a\x00", b"\xc0\x3e\x00", b"\x2a\x03\x1a\x01\x01"],
    ids=["inputs", "contents", "outputs", "parameters", "raw", "unknown", "packed"],
)
def test_what_is_small_on_the_wire_is_counted_for_what_it_becomes(often: bytes) -> None:
    for count in (100, 2000, 40_000):
        data = often * count
        assert taken(INFER, data) + len(data) <= message_bytes(INFER.DESCRIPTOR, data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (GROUP + b"\x2a\x00" * 4000, "group"),
        (b"\x2a\x02" + b"\x2b\x2c" + b"\x2a\x00" * 4000, "group"),
        (b"\x2a\x00" * 4000 + b"\x2c", "group"),
        (b"\x0f" + b"\x2a\x00" * 4000, "group, or a field of no kind"),
        (b"\x2a\xff\xff\xff\x7f" + b"\x2a\x00" * 4000, "outside"),
        (b"\x2a\x00" * 4000 + b"\xff" * 11, "without end"),
        (b"\xaa\x80\x80\x80\x80\x80\x00" + b"\x00" * 5000, "number"),
        (b"\x2a\x00" * (MOST_FIELDS + 1), "too many fields"),
    ],
)
def test_what_cannot_be_counted_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(IngotError, match=reason) as caught:
        message_bytes(INFER.DESCRIPTOR, data)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_messages_in_messages_end() -> None:
    data = b"\x22" + bytes(5000)
    for _ in range(60):
        data = with_length(5, with_length(1, data))
    kind: Any = compiler_pb2.CompileRequest.DESCRIPTOR
    with pytest.raises(IngotError, match="deep"):
        message_bytes(kind, with_length(4, with_length(2, data)))


def test_a_method_whose_messages_nothing_counts_is_not_served() -> None:
    assert cost_of(INFER.FromString)(b"\x0a\x01a") >= 3
    assert cost_of(None)(b"abc") == 3
    with pytest.raises(IngotError, match="nothing counts"):
        cost_of(lambda data: data)


@pytest.mark.parametrize("service", ["compiler", "runtime"])
def test_services_refuse_what_becomes_much_before_they_parse_it(service: str) -> None:
    """Over a socket."""
    lane, room = Lane("calls", 4), RequestRoom(1 << 30)
    server = RpcServer(lambda method: lane, room, 64 << 20)
    if service == "compiler":
        compiler_pb2_grpc.add_CompilerServiceServicer_to_server(compiler_pb2_grpc.CompilerServiceServicer(), server)
        many = with_length(4, with_length(1, b"k") + with_length(2, with_length(5, b"\x0a\x00" * 4_000_000)))
        method = "/ingot.compiler.v1.CompilerService/Compile"
    else:
        grpc_service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            grpc_service_pb2_grpc.GRPCInferenceServiceServicer(), server
        )
        many, method = b"\x2a\x00" * 4_000_000, "/inference.GRPCInferenceService/ModelInfer"
    port = server.bind("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(method, None, None)
            for data, code in ((many, "INVALID_ARGUMENT"), (GROUP + many, "INVALID_ARGUMENT"), (b"", "UNIMPLEMENTED")):
                with pytest.raises(grpc.RpcError) as caught:
                    call(data, timeout=60)
                assert caught.value.code().name == code
    finally:
        server.stop(0)
    assert room.held == 0
