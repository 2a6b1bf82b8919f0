"""Clients that hang up, requests that are wrong, models that come and go: what goes on beside good requests."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import grpc
import numpy as np

from shared_ir.pb.inference.v2 import grpc_service_pb2 as pb
from shared_ir.pb.inference.v2.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from tests.peers.fuzzer import SERVICE, answers, exchange, raw_call
from tests.peers.http_bytes import KINDS
from tests.soak.callers import CALLERS, Tally, rows
from tests.soak.rig import COMING, FACTORS, STEADY, WIDTH, Rig


@dataclass
class Trouble:
    """What was done, by kind, and what came of it that should not."""

    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    """Of good requests to models that have just been loaded."""


def hang_up(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    """Connect, send something or a part of it, and go: in order, or by a reset."""
    body = json.dumps({"inputs": [tensor("FP32", [4, WIDTH], [1.0] * 4 * WIDTH)]}).encode()
    request = f"POST /v2/models/{STEADY}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = request.encode() + body
    message = infer_request(STEADY, "FP32", (4, WIDTH), bytes(16 * WIDTH)).SerializeToString()
    call = raw_call(f"/{SERVICE}/ModelInfer", message, len(message))
    protocol = draw.choice(("http", "grpc"))
    data = whole if protocol == "http" else call
    with suppress(OSError), socket.create_connection(("127.0.0.1", rig.port(protocol)), 5) as connection:
        connection.sendall(data[: draw.choice((0, draw.randrange(len(data)), len(data)))])
        if draw.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(draw.choice((0.0, 0.0, 0.002)))
    trouble.done["hung up"] += 1


def ask_wrongly(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    """What is wrong with it must be told; and odd bytes are never a fault of the server."""
    draw.choice((_wrong_http, _wrong_grpc, _odd_bytes))(rig, draw, trouble)


def tensor(datatype: str, shape: list[int], data: object) -> dict[str, object]:
    return {"name": "x", "datatype": datatype, "shape": shape, "data": data}


_WRONG: tuple[tuple[str, object, int], ...] = (
    (STEADY, {"inputs": [tensor("INT64", [1, WIDTH], [1] * WIDTH)]}, 400),
    (STEADY, {"inputs": [tensor("FP32", [1, 3], [1.0] * 3)]}, 400),
    (STEADY, {"inputs": [tensor("FP32", [2, WIDTH], [1.0])]}, 400),
    (STEADY, {"inputs": []}, 400),
    (STEADY, {"inputs": [tensor("FP32", [1, WIDTH], ["a"] * WIDTH)]}, 400),
    (STEADY, [], 400),
    ("nobody", {"inputs": [tensor("FP32", [1, WIDTH], [1.0] * WIDTH)]}, 404),
    (f"{STEADY}/versions/77", {"inputs": [tensor("FP32", [1, WIDTH], [1.0] * WIDTH)]}, 404),
)


def _wrong_http(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    model, document, wanted = draw.choice(_WRONG)
    body = json.dumps(document).encode()
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    found = [status for status, _ in answers(exchange(rig.port("http"), head.encode() + body))]
    if found != [wanted]:
        trouble.faults.append(f"{found} for {model} {body[:200]!r}, {wanted} was to come")
    trouble.done["wrong over HTTP"] += 1


def infer_request(model: str, datatype: str, shape: tuple[int, ...], raw: bytes) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model, raw_input_contents=[raw])
    request.inputs.add(name="x", datatype=datatype, shape=shape)
    return request


def _wrong_grpc(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    request, wanted = draw.choice(
        (
            (infer_request(STEADY, "FP32", (1, WIDTH), bytes(3)), invalid),
            (infer_request(STEADY, "FP64", (1, WIDTH), bytes(8 * WIDTH)), invalid),
            (infer_request(STEADY, "FP32", (-1, WIDTH), bytes(4 * WIDTH)), invalid),
            (infer_request("nobody", "FP32", (1, WIDTH), bytes(4 * WIDTH)), missing),
        )
    )
    with grpc.insecure_channel(rig.addresses["grpc"], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=20)
            trouble.faults.append(f"an answer to {request}")
        except grpc.RpcError as error:
            if error.code() is not wanted:
                trouble.faults.append(f"{error.code()} {error.details()} for {request}, {wanted} was to come")
    trouble.done["wrong over gRPC"] += 1


def _odd_bytes(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    sent = draw.choice(KINDS)(draw)
    received = exchange(rig.port("http"), sent)
    with suppress(ValueError):  # an answer to HEAD, which tests/peers looks at
        trouble.faults += [f"{body[:200]!r} for {sent[:300]!r}" for status, body in answers(received) if status == 500]
    trouble.done["odd bytes"] += 1


def come_and_go(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    """Load a model, ask it, unload it: from the moment it is loaded to that it answers as any other does."""
    name = draw.choice([name for name in FACTORS if name.startswith(COMING)])
    status, body = rig.control(name, "load")
    if status != 200:
        trouble.faults.append(f"{name} cannot be loaded: {status} {body[:300]!r}")
        return
    numbers = np.random.default_rng(draw.randrange(1 << 30))
    for kind in CALLERS:
        ask = CALLERS[kind](rig)
        for _ in range(3):
            trouble.tally.ask(kind, name, rows(numbers), ask)
    status, body = rig.control(name, "unload")
    if status != 200:
        trouble.faults.append(f"{name} cannot be unloaded: {status} {body[:300]!r}")
    trouble.done["loaded and unloaded"] += 1


def swap(rig: Rig, draw: random.Random, trouble: Trouble) -> None:
    """The label moves; requests go on."""
    rig.move(1 + trouble.done["swapped"] % 2)
    trouble.done["swapped"] += 1


TROUBLES: tuple[tuple[Callable[[Rig, random.Random, Trouble], None], float], ...] = (
    (hang_up, 0.02),
    (ask_wrongly, 0.02),
    (come_and_go, 2.0),
    (swap, 3.0),
)
"""Each has a thread, which pauses for so many seconds on average."""
