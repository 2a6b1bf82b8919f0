"""Who has the token and no trusted key, and who has neither: nothing of theirs is loaded, and each call ends with a sentence."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from compiler_service.compiler.codegen.toolchain.candidate import link_candidate, measuring_program
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.tune.measuring.trial import Content
from ingot.channel import decode_error
from shared_ir.artifact.signature import SigningKey
from shared_ir.device.order import MeasuringOrder, OrderedBuffer, OrderedLaunch, OrderedTrial, sign_order
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.pb.ingot.device.v1 import device_pb2 as pb
from shared_ir.pb.ingot.device.v1 import device_pb2_grpc
from tests.ingot.device.boards import COUNT, DOUBLES, INPUT, LocalBoard, board, candidate

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(900),
]  # the first static program for a target builds its C library
KEY = SigningKey.generate()
SECONDS = 30.0
ROUNDS = 400
"""Of odd requests."""


@dataclass
class Attacker:
    """Speaks with a server as no client of ours does."""

    board: LocalBoard
    channel: grpc.Channel
    stub: Any
    lease: str
    order: MeasuringOrder

    def put(self, data: bytes, digest: str = "", size: int = -1) -> None:
        header = pb.ContentHeader(
            lease=self.lease, digest=digest or Content.of(data).digest, size=len(data) if size == -1 else size
        )
        parts = [pb.PutContentRequest(header=header), pb.PutContentRequest(data=data)]
        self.stub.PutContent(iter(parts), timeout=SECONDS)

    def run(self, order: bytes, lease: str | None = None) -> list[Any]:
        request = pb.RunRequest(lease=self.lease if lease is None else lease, order=order)
        return list(self.stub.Run(request, timeout=SECONDS))

    def raw(self, method: str, data: bytes, *, is_stream: bool = False) -> list[Any]:
        """Bytes in place of a message."""
        path = f"/ingot.device.v1.DeviceService/{method}"
        if is_stream:
            self.channel.stream_unary(path, None, None)(iter([data, data]), timeout=SECONDS)
        elif method == "Run":
            return [
                pb.RunResponse.FromString(own)
                for own in self.channel.unary_stream(path, None, None)(data, timeout=SECONDS)
            ]
        else:
            self.channel.unary_unary(path, None, None)(data, timeout=SECONDS)
        return []


@pytest.fixture(scope="module", name="attacker")
def make_attacker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    target = host_target()
    library = link_candidate(candidate(DOUBLES).code[0], "k", target)
    runner = measuring_program(target).read_bytes()
    with board(tmp_path_factory.mktemp("attacked"), KEY) as running, grpc.insecure_channel(running.address) as channel:
        stub = device_pb2_grpc.DeviceServiceStub(channel)
        lease = stub.TakeLease(pb.TakeLeaseRequest(seconds=600), timeout=SECONDS).id
        trial = OrderedTrial(
            (Content.of(library).digest,),
            (OrderedLaunch(0, "k", (0, 1), (), COUNT, 64),),
            (
                OrderedBuffer(INPUT.nbytes, Content.of(INPUT.tobytes()).digest),
                OrderedBuffer(INPUT.nbytes, is_result=True),
            ),
        )
        target_words = (target.triple, target.cpu, target.features)
        order = MeasuringOrder(lease, *target_words, Content.of(runner).digest, 0.01, 1.0, (trial,))
        found = Attacker(running, channel, stub, lease, order)
        for data in (library, runner, INPUT.tobytes()):
            found.put(data)
        yield found
        assert running.process.poll() is None, "the server lives"
        assert running.children() == []


def error_of(call: Any) -> IngotError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return decode_error("the board", caught.value)


def end_of(call: Callable[[], list[Any]]) -> ErrorCode | str:
    """The code of the error, which says something, or the kind of the last outcome."""
    try:
        return str(call()[-1].outcome.kind)
    except grpc.RpcError as error:
        found = decode_error("the board", error)
        return found.code if found.message else "no sentence"


def test_the_order_itself_is_good(attacker: Attacker) -> None:
    *_, last = attacker.run(sign_order(attacker.order, KEY))
    assert last.outcome.kind == "measured"


def test_what_no_trusted_key_has_signed(attacker: Attacker) -> None:
    signed = sign_order(attacker.order, KEY)
    document = json.loads(signed)
    unsigned = json.dumps(document | {"annotations": {}}).encode()
    foreign = sign_order(attacker.order, SigningKey.generate())
    claimed = json.loads(foreign)
    claimed["annotations"]["io.ingot.signature.key"] = KEY.key_id
    tampered = signed.replace(f'"tasks":{COUNT}'.encode(), f'"tasks":{COUNT + 1}'.encode())
    assert tampered != signed
    for data in (unsigned, foreign, json.dumps(claimed).encode(), tampered):
        assert error_of(lambda data=data: attacker.run(data)).code is ErrorCode.ARTIFACT_UNTRUSTED
    assert "signed by a key that is not trusted" in attacker.board.log.read_text(), "who runs the device sees it"


def test_a_tampered_library_is_another_content(attacker: Attacker) -> None:
    """What was signed is the digest: no other bytes can be put in its place, and bytes beside it are not what the order names."""
    library = link_candidate(candidate(DOUBLES.replace("2.0f", "7.0f")).code[0], "k", host_target())
    tampered = bytearray(library)
    tampered[-1] ^= 1
    digest = Content.of(library).digest
    assert error_of(lambda: attacker.put(bytes(tampered), digest)).code is ErrorCode.CHECKSUM_MISMATCH
    attacker.put(bytes(tampered))
    order = replace(attacker.order, trials=(replace(attacker.order.trials[0], libraries=(digest,)),))
    error = error_of(lambda: attacker.run(sign_order(order, KEY)))
    assert (error.code, error.field) == (ErrorCode.NOT_FOUND, digest)


def test_an_order_is_good_for_its_lease_alone(attacker: Attacker) -> None:
    old = sign_order(replace(attacker.order, lease="yesterday"), KEY)
    assert error_of(lambda: attacker.run(old)).code is ErrorCode.INVALID_ARGUMENT
    assert error_of(lambda: attacker.run(old, "yesterday")).code is ErrorCode.NOT_FOUND


def test_orders_for_other_machines(attacker: Attacker) -> None:
    for change in ({"triple": "aarch64-linux-gnu", "cpu": "cortex-a72", "features": ()}, {"triple": "sparc-linux-gnu"}):
        error = error_of(lambda change=change: attacker.run(sign_order(replace(attacker.order, **change), KEY)))
        assert error.code in (ErrorCode.ARTIFACT_INCOMPATIBLE, ErrorCode.INVALID_TARGET)


def test_files_that_are_no_libraries(attacker: Attacker) -> None:
    trial = attacker.order.trials[0]
    script = b"#!/bin/sh\ntouch /tmp/owned\n" * 10
    attacker.put(script)
    digest = Content.of(script).digest
    for order in (
        replace(attacker.order, runner=digest),
        replace(attacker.order, runner=trial.libraries[0]),
        replace(attacker.order, trials=(replace(trial, libraries=(digest,)),)),
        replace(attacker.order, trials=(replace(trial, libraries=(attacker.order.runner,)),)),
    ):
        assert (
            error_of(lambda order=order: attacker.run(sign_order(order, KEY))).code is ErrorCode.ARTIFACT_INCOMPATIBLE
        )


def test_contents_of_another_size_than_their_buffers(attacker: Attacker) -> None:
    trial = attacker.order.trials[0]
    shorter = replace(trial, buffers=(replace(trial.buffers[0], size=INPUT.nbytes - 4), trial.buffers[1]))
    error = error_of(lambda: attacker.run(sign_order(replace(attacker.order, trials=(shorter,)), KEY)))
    assert (error.code, error.field) == (ErrorCode.INVALID_ARGUMENT, "trials[0].buffers[0]")


def test_a_name_that_the_library_lacks(attacker: Attacker) -> None:
    trial = attacker.order.trials[0]
    other = replace(trial, launches=(replace(trial.launches[0], symbol="memcpy"),))
    (answer,) = attacker.run(sign_order(replace(attacker.order, trials=(other,)), KEY))
    assert (answer.outcome.kind, answer.outcome.reason) == ("refused", "the library lacks the function memcpy")


def test_contents_that_lie_about_themselves(attacker: Attacker) -> None:
    data = b"data" * 100
    for call, code in (
        (lambda: attacker.put(data, "0" * 64), ErrorCode.CHECKSUM_MISMATCH),
        (lambda: attacker.put(data, "1" * 64, len(data) - 1), ErrorCode.CHECKSUM_MISMATCH),
        (lambda: attacker.put(data, "2" * 64, len(data) + 1), ErrorCode.CHECKSUM_MISMATCH),
        (lambda: attacker.put(data, "3" * 64, -5), ErrorCode.INVALID_ARGUMENT),
        (lambda: attacker.put(data, "3" * 64, 1 << 62), ErrorCode.LIMIT_EXCEEDED),
        (lambda: attacker.put(data, "../../etc/passwd"), ErrorCode.INVALID_ARGUMENT),
        (lambda: attacker.stub.PutContent(iter([]), timeout=SECONDS), ErrorCode.INVALID_ARGUMENT),
        (
            lambda: attacker.stub.PutContent(iter([pb.PutContentRequest(data=data)]), timeout=SECONDS),
            ErrorCode.INVALID_ARGUMENT,
        ),
    ):
        assert error_of(call).code is code
    header = pb.PutContentRequest(header=pb.ContentHeader(lease="other", digest="4" * 64, size=1))
    assert error_of(lambda: attacker.stub.PutContent(iter([header]), timeout=SECONDS)).code is ErrorCode.NOT_FOUND


def test_a_message_that_is_too_large_is_not_read(attacker: Attacker) -> None:
    assert error_of(lambda: attacker.run(bytes(5 << 20))).code is ErrorCode.RESOURCE_EXHAUSTED
    assert error_of(lambda: attacker.run(bytes(2 << 20))).code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "method", ["GetStatus", "TakeLease", "RenewLease", "ReleaseLease", "FindMissing", "PutContent", "Run"]
)
def test_bytes_that_are_no_message(attacker: Attacker, method: str) -> None:
    error = error_of(lambda: attacker.raw(method, b"\x0a\xff\xff\xff\xff\x0f", is_stream=method == "PutContent"))
    assert error.code is ErrorCode.INVALID_ARGUMENT
    assert "no message" in error.message


def test_odd_orders(attacker: Attacker) -> None:
    """Bytes of a good request changed, cut and doubled, and fields of a signed order changed by one who has the key: each call ends with
    the answer to a good order, or with an error that says what is wrong; the last call is answered as the first."""
    random = Random(36)
    signed = sign_order(attacker.order, KEY)
    for _ in range(ROUNDS):
        order = _odd_bytes(random, signed)
        odd = _odd_bytes(random, pb.RunRequest(lease=attacker.lease, order=signed).SerializeToString())
        found = end_of(random.choice([partial(attacker.run, order), partial(attacker.raw, "Run", odd)]))
        assert found in (ErrorCode.INVALID_ARGUMENT, ErrorCode.ARTIFACT_UNTRUSTED, ErrorCode.NOT_FOUND, "measured")
    assert attacker.run(signed)[-1].outcome.kind == "measured"


def test_odd_orders_of_one_who_has_the_key(attacker: Attacker) -> None:
    random = Random(63)
    for _ in range(ROUNDS // 4):
        trial = attacker.order.trials[0]
        launch = replace(
            trial.launches[0],
            tasks=random.choice([0, 1, COUNT, COUNT * 1000, (1 << 63) - 1]),
            scratch=random.choice([0, 1, 1 << 20, 1 << 47]),
            buffers=tuple(random.choices(range(2), k=random.choice([0, 1, 2, 50]))),
        )
        buffers = tuple(
            replace(b, copies=random.choice([1, 2, 4096]), size=random.choice([b.size, b.size, 0, 1 << 47]))
            for b in trial.buffers
        )
        order = replace(
            attacker.order,
            limit=0.3,
            trials=(OrderedTrial(trial.libraries, (launch,) * random.choice([1, 3]), buffers),),
        )
        assert end_of(partial(attacker.run, sign_order(order, KEY))) in (
            ErrorCode.INVALID_ARGUMENT,
            ErrorCode.LIMIT_EXCEEDED,
            *("measured", "crashed", "late", "refused"),
        )
    assert attacker.run(sign_order(attacker.order, KEY))[-1].outcome.kind == "measured"


def _odd_bytes(random: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 8])):
        at = random.randrange(len(found))
        kind = random.randrange(4)
        if kind == 0:
            found[at] = random.randrange(256)
        elif kind == 1:
            del found[at : at + random.randrange(1, 64)]
        elif kind == 2:
            found[at:at] = random.randbytes(random.randrange(1, 16))
        else:
            found[at:at] = found[: random.randrange(1, 64)]
        found = found or bytearray(b"{")
    return bytes(found)


def test_uploads_that_never_end_take_neither_the_threads_nor_the_device(tmp_path: Path) -> None:
    with board(tmp_path, KEY) as running, grpc.insecure_channel(running.address) as channel:
        stub = device_pb2_grpc.DeviceServiceStub(channel)
        lease = stub.TakeLease(pb.TakeLeaseRequest(seconds=2.0), timeout=SECONDS).id
        over = threading.Event()

        def stalled(number: int) -> Iterator[Any]:
            yield pb.PutContentRequest(header=pb.ContentHeader(lease=lease, digest=f"{number:064x}", size=100))
            over.wait(SECONDS)

        try:
            calls = [stub.PutContent.future(stalled(n), timeout=SECONDS) for n in range(6)]
            codes = {decode_error("the board", call.exception(timeout=SECONDS)).code for call in calls}
            assert codes == {ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.CANCELLED}, (
                "few at once, and none beyond the lease"
            )
            assert not stub.GetStatus(pb.GetStatusRequest(), timeout=SECONDS).is_leased
        finally:
            over.set()


def test_no_key_no_server(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="has not started"), board(tmp_path, KEY, "--listen", "0.0.0.0:0"):
        raise RuntimeError("it listens for everybody")
