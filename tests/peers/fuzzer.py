"""Sends odd bytes to the ports of a runtime service and says what no answer may be: ``python -m tests.peers.fuzzer SECONDS [SEED]``."""

from __future__ import annotations

import json
import logging
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from runtime_service.server import RuntimeServer
from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from tests.peers.http_bytes import KINDS, SECRET
from tests.runtime_service.toy_models import ToySource, running_server, scale_model, wait_until

_FOREIGN = re.compile(r"Traceback|site-packages|\.py\b|/home/|/root/|/tmp/|/usr/|0x[0-9a-f]{8}")
_MOST_TEXT = 10_000
_SILENT = {429, 503}
SERVICE = "inference.GRPCInferenceService"
METHODS = {
    "ModelInfer": pb.ModelInferRequest, "ModelMetadata": pb.ModelMetadataRequest, "ModelConfig": pb.ModelConfigRequest,
    "ModelReady": pb.ModelReadyRequest, "ModelStatistics": pb.ModelStatisticsRequest, "ServerLive": pb.ServerLiveRequest,
    "ServerMetadata": pb.ServerMetadataRequest, "RepositoryIndex": pb.RepositoryIndexRequest,
    "RepositoryModelLoad": pb.RepositoryModelLoadRequest, "RepositoryModelUnload": pb.RepositoryModelUnloadRequest,
    "SystemSharedMemoryStatus": pb.SystemSharedMemoryStatusRequest, "TraceSetting": pb.TraceSettingRequest,
    "SystemSharedMemoryRegister": pb.SystemSharedMemoryRegisterRequest, "LogSettings": pb.LogSettingsRequest,
    "CudaSharedMemoryRegister": pb.CudaSharedMemoryRegisterRequest,
}  # fmt: skip


class Lines(logging.Handler):
    """The log of the services."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@dataclass
class Findings:
    """``faults`` say what was sent, and what is wrong with the answer."""

    sent: int = 0
    faults: list[str] = field(default_factory=list)

    def note(self, sent: bytes, fault: str) -> None:
        self.faults.append(f"{fault}\n    for {sent[:600]!r}")


@contextmanager
def log_lines() -> Iterator[Lines]:
    lines, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        root.setLevel(level)


def server(**settings: Any) -> AbstractContextManager[RuntimeServer]:
    """A runtime service of one model that takes no request of more than a megabyte."""
    source = ToySource()
    source.publish("scale", 1, scale_model, "stable")
    defaults: dict[str, Any] = {"models": "scale", "max_request_bytes": 1 << 20, "shared_memory": "ingot-fuzz-"}
    return running_server(source, **defaults | settings)


@contextmanager
def unfinished(port: int, method: str, count: int, first: Sequence[bytes] = ()) -> Iterator[list[Any]]:
    """Calls of a method whose message never comes, or the one after the ``first``."""
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        yield from first
        over.wait(60)

    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        try:
            yield [channel.stream_unary(method, None, None).future(nothing(), timeout=60) for _ in range(count)]
        finally:
            over.set()


def port_of(running: RuntimeServer, name: str) -> int:
    return int(running.addresses[name].rpartition(":")[2])


def exchange(port: int, data: bytes) -> bytes:
    """All that comes back before the server ends the connection, or falls silent after we have ended our side."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                received += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
    return received


def answers(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Status and body of each answer.

    Raises:
        ValueError: these are no answers of HTTP/1.1.
    """
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        match = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [ -~]*((?:\r\n[A-Za-z-]+: [ -~]*)*)", head)
        if not mark or match is None:
            raise ValueError(f"no answer: {data[:200]!r}")
        status = int(match[1])
        length = re.search(rb"\r\nContent-Length: (\d+)", match[2])
        if status == 100:
            data = rest
            continue
        if length is None:
            raise ValueError("an answer without a length")
        size = int(length[1])
        whole = len(rest) >= size
        yield status, rest[:size] if whole else b""
        data = rest[size:] if whole else b""  # the answer to HEAD has no body


def check_http(sent: bytes, received: bytes, lines: list[logging.LogRecord], found: Findings) -> None:
    refused = 0
    try:
        for status, body in answers(received):
            if status == 500 or status not in range(200, 600):
                found.note(sent, f"status {status}: {body[:300]!r}")
            if status >= 400 and body:
                refused += status not in _SILENT
                check_text(sent, json.loads(body), status, found)
    except ValueError as error:
        if b"HEAD" not in sent:
            found.note(sent, f"{error}")
        return
    told = [line.getMessage() for line in lines]
    if b"HEAD" not in sent and len(told) != refused:
        found.note(sent, f"{refused} refused, {len(told)} lines in the log: {told}")
    for line in lines:
        if line.levelno >= logging.WARNING or line.exc_info or not line.getMessage().isprintable():
            found.note(sent, f"a line in the log: {line.levelname} {line.getMessage()!r}")


def check_text(sent: bytes, document: dict[str, str], status: int, found: Findings) -> None:
    for name, text in document.items():
        if (
            not text.isprintable()
            or len(text) > _MOST_TEXT
            or _FOREIGN.search(text)
            or (SECRET in text and SECRET.encode() not in sent)
        ):
            found.note(sent, f"{status}: {name} is {text[:500]!r}")
    if not {"error", "code", "message", "blame"} <= set(document):
        found.note(sent, f"{status} without its fields: {document}")


def message_bytes(source: random.Random, kind: Any) -> bytes:
    """A message of a method with something changed in it."""
    message = kind()
    for name in ("name", "model_name", "version", "key"):
        if name in kind.DESCRIPTOR.fields_by_name:
            setattr(message, name, source.choice(("scale", "", "\x1b[31m\u202e", "n" * 5000, "1")))
    if kind is pb.ModelInferRequest:
        kinds = ("FP32", "BYTES", "\x00", "t" * 5000, "BF16")
        tensor = message.inputs.add(name=source.choice(("x", "\x1b", "y" * 4000)), datatype=source.choice(kinds))
        tensor.shape.extend(source.choice(((1, 4), (-1, 4), (2**62, 2**62), (0,), ())))
        message.raw_input_contents.append(source.randbytes(source.choice((0, 16, 17))))
        if source.random() < 0.3:
            place = message.outputs.add(name=source.choice(("y", "\x1b"))).parameters
            place[source.choice(("classification", "shared_memory_byte_size"))].int64_param = source.choice(
                (-1, 2, 2**63 - 1)
            )
            place["shared_memory_region"].string_param = source.choice(("", "scale", "\x1b", "r" * 4000))
    data = bytearray(message.SerializeToString())
    for _ in range(source.choice((0, 0, 1, 4))):
        at = source.randrange(len(data) + 1)
        data[at : at + source.choice((0, 1, 3))] = source.randbytes(source.choice((0, 1, 3)))
    return bytes(data)


def check_grpc(channel: grpc.Channel, method: str, sent: bytes, lines: Lines, found: Findings) -> None:
    lines.records.clear()
    try:
        channel.unary_unary(f"/{method}", None, None)(sent, timeout=20, metadata=(("x-note", "v" * 100),))
        return
    except grpc.RpcError as error:
        failure = error
    code, details = failure.code(), str(failure.details())
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED):
        found.note(sent, f"{method}: {code} {details}")
    if not details.isprintable() or len(details) > _MOST_TEXT or _FOREIGN.search(details):
        found.note(sent, f"{method}: {code} {details[:500]!r}")
    told = list(lines.records)
    if len(told) != 1 or told[0].levelno >= logging.WARNING or not told[0].getMessage().isprintable():
        found.note(sent, f"{method}: lines in the log: {[line.getMessage() for line in told]}")


def check_stream(channel: grpc.Channel, sent: list[bytes], found: Findings) -> None:
    """Every message has its answer, in its place."""
    method = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", bytes, pb.ModelStreamInferResponse.FromString)
    try:
        answers = list(method(iter(sent), timeout=20))
    except grpc.RpcError as error:
        found.note(b"|".join(sent), f"a stream: {error.code()} {error.details()}")
        return
    if len(answers) != len(sent):
        found.note(b"|".join(sent), f"a stream of {len(sent)} messages has {len(answers)} answers")
    for text in (answer.error_message for answer in answers):
        if not text.isprintable() or len(text) > _MOST_TEXT or _FOREIGN.search(text) or "the service failed" in text:
            found.note(b"|".join(sent), f"a stream: {text[:500]!r}")


def fuzz(running: RuntimeServer, seconds: float, seed: int) -> Findings:
    """What goes wrong within so many seconds."""
    found, source, end = Findings(), random.Random(seed), time.monotonic() + seconds
    http_port, grpc_port = port_of(running, "http"), port_of(running, "grpc")
    with log_lines() as lines, grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        while time.monotonic() < end and len(found.faults) < 10:
            found.sent += 1
            if source.random() < 0.1:
                sent_together = [message_bytes(source, pb.ModelInferRequest) for _ in range(source.choice((0, 1, 40)))]
                check_stream(channel, sent_together, found)
                continue
            if source.random() < 0.3:
                method = source.choice(list(METHODS))
                check_grpc(channel, f"{SERVICE}/{method}", message_bytes(source, METHODS[method]), lines, found)
                continue
            sent = source.choice(KINDS)(source)
            lines.records.clear()
            received = exchange(http_port, sent)
            check_http(sent, received, list(lines.records), found)
            if source.random() < 0.05:
                exchange(grpc_port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" * (source.random() < 0.7) + _frames(source))
    return found


def settled(running: RuntimeServer) -> None:
    """Nothing is held any more once everybody has gone."""
    servers = list(running._http.values())
    wait_until(lambda: not any(server._connections for server in servers) and not servers[0].room.held, 20)
    assert running.dataplane.ready()


def raw_call(method: str, data: bytes, size: int, window: int = 65535) -> bytes:
    """What a client of HTTP/2 sends to call a method with a message of ``size`` bytes that starts with ``data`` (RFC 9113, RFC 7541).

    ``window`` is how much of the answer it takes.
    """

    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body

    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "localhost", "te": "trailers"}
    fields["content-type"] = "application/grpc"
    block = b"".join(b"\0" + bytes((len(k),)) + k.encode() + bytes((len(v),)) + v.encode() for k, v in fields.items())
    data = b"\0" + size.to_bytes(4, "big") + data
    found = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, b"\0\4" + window.to_bytes(4, "big"))
        + frame(1, 4, 1, block)
    )
    return found + b"".join(frame(0, 0, 1, data[at : at + 16384]) for at in range(0, len(data), 16384))


def _frames(source: random.Random) -> bytes:
    """Frames of HTTP/2 with random headers and contents."""
    found = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * (source.random() < 0.8)
    for _ in range(source.randrange(5)):
        body = source.randbytes(source.choice((0, 4, 5, 8, 40)))
        size = len(body) if source.random() < 0.8 else source.randrange(1 << 24)
        head = (
            size.to_bytes(3, "big")
            + bytes((source.randrange(12), source.randrange(256)))
            + source.choice((0, 1, 3, 2**31 - 1)).to_bytes(4, "big")
        )
        found += head + body
    return found


def main(arguments: list[str]) -> int:
    seconds, seed = float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else int(time.time())
    with server() as running:
        found = fuzz(running, seconds, seed)
        settled(running)
    print(f"seed {seed}: {found.sent} requests, {len(found.faults)} faults", *found.faults, sep="\n")
    return bool(found.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
