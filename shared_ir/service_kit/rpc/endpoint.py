"""One connection of an RPC server: from frames to calls, and from answers to frames. All of it runs in the thread of the loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import grpc

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.lanes import CallStage, name_of
from shared_ir.service_kit.event_loop import Greeting
from shared_ir.service_kit.http2.connection import Http2Connection
from shared_ir.service_kit.http2.frames import Code, ConnectionFault
from shared_ir.service_kit.http2.headers import Http2Head
from shared_ir.service_kit.http2.sending import FRAMES_EARNED, MOST_OUT
from shared_ir.service_kit.memory.room import GRACE_SECONDS, RequestRoom
from shared_ir.service_kit.rpc.call import RequestStream, RpcCall
from shared_ir.service_kit.rpc.messages import framed
from shared_ir.service_kit.rpc.request_head import ANSWER_HEAD, NO_GRPC, read_head, trailers
from shared_ir.service_kit.rpc.unfinished import UnfinishedFrame
from shared_ir.service_kit.status import let_go
from shared_ir.service_kit.waiting import WouldWait

_SECONDS_TO_CLOSE = 5.0
_TURN_SECONDS = 0.005
"""For so long the frames of one connection are looked at before others have their turn; a read may bring thousands."""
_WASTED = FRAMES_EARNED + 2.0
"""Frames without effect as which a call counts that can be none, so that who has no token cannot ask on and on."""
_IDLE_SECONDS, _GREETING_SECONDS = 300.0, 20.0
"""A connection without calls is let go after so long; one whose client has not said anything, sooner."""
_OURS = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
"""Refusals that say nothing of who calls."""


class EndpointOwner(Protocol):
    """The server of a connection."""

    room: RequestRoom

    def connected(self, endpoint: RpcEndpoint, /) -> bool:
        """Whether there is room for it."""

    def disconnected(self, endpoint: RpcEndpoint, /) -> None: ...

    def begin(self, endpoint: RpcEndpoint, stream: int, head: Any, /) -> RpcCall | None:
        """The call that a head begins, which may have been answered already; None where there is no such method."""

    def dispatch(self, call: RpcCall, /) -> None:
        """Its message, or its first one, is there."""

    def ended(self, call: RpcCall, /) -> None: ...

    def post(self, action: Any, call: RpcCall, /) -> None:
        """Do ``action(call)`` in the thread of the loop, at once where this is that."""

    def retry(self, action: Any, call: RpcCall, /) -> None:
        """Do ``action(call)`` in a moment."""


class RpcEndpoint(asyncio.Protocol):
    def __init__(self, owner: EndpointOwner) -> None:
        self.peer = ""
        self.since = time.monotonic()
        """When it last had a stream, or began."""
        self.closing_since: float | None = None
        self._owner = owner
        self._transport: Any = None
        self._connection = Http2Connection(self)
        self._calls: dict[int, RpcCall] = {}
        self._is_introduced = False
        """Whether there is somebody to talk to."""
        self._is_receiving = False
        self._is_behind = False
        """There was no time for all that has come."""
        self._unfinished = UnfinishedFrame(self._connection, owner.room)

    def auth_context(self) -> dict[str, list[bytes]]:
        """As gRPC has it: the common name, and all alternative names."""
        secured = self._transport.get_extra_info("ssl_object")
        shown = secured.getpeercert() if secured is not None else None
        if not shown:
            return {}
        names = {"x509_subject_alternative_name": [value.encode() for _, value in shown.get("subjectAltName", ())]}
        common = [v.encode() for part in shown.get("subject", ()) for key, v in part if key == "commonName"]
        return {"x509_common_name": common[:1], **names} if common else names

    # ---- of the transport

    def accepted(self, greeting: Greeting, name: Any) -> bool:
        self._transport = greeting
        self.peer = _peer(name)
        return self._owner.connected(self)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._is_introduced = True
        transport.set_write_buffer_limits(MOST_OUT)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self.closing_since is not None:
            return
        self._is_receiving, is_done = True, True
        try:
            is_done = self._connection.receive(data, time.monotonic() + _TURN_SECONDS)
        except ConnectionFault as fault:
            self._connection.fail(fault)
            self._flush()
            self.close()
        finally:
            self._is_receiving = False
        self._flush()
        if not is_done and not self._transport.is_closing():
            self._is_behind = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """After others had their turn."""
        self._is_behind = False
        if self._transport.is_closing():
            return
        self._read_on()
        self.data_received(b"")

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.is_choked = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._connection.unchoke()
        self._flush()
        self._read_on()

    def _read_on(self) -> None:
        if not (self._is_behind or self._connection.is_choked):
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        for call in tuple(self._calls.values()):
            self._end(call)
        self._unfinished.forget()
        self._owner.disconnected(self)

    def leave(self) -> None:
        """No new streams."""
        self._connection.leave()
        self._flush()

    def close(self) -> None:
        """Once what is written has left."""
        if self.closing_since is None:
            self.closing_since = time.monotonic()
            self._transport.close()

    def look(self, now: float) -> None:
        """Let go of a peer that wants nothing, or does not take what was written last."""
        if self.closing_since is not None:
            if now - self.closing_since > _SECONDS_TO_CLOSE:
                self._transport.abort()
            return
        if not self._unfinished.may_stay(now, name_of(self.peer)):
            self._unfinished.forget()
            self._connection.fail(
                ConnectionFault(Code.ENHANCE_YOUR_CALM, "no room for a frame that does not come whole")
            )
            self._flush()
            self.close()
        elif self._connection.open:
            self.since = now
        elif now - self.since > (_IDLE_SECONDS if self._connection.is_introduced else _GREETING_SECONDS):
            self.part()

    def is_idle(self, now: float) -> bool:
        return not self._connection.open and now - self.since > GRACE_SECONDS

    def part(self) -> None:
        self.leave()
        self.close()

    # ---- of the connection

    def opened(self, stream: int, head: Http2Head, ended: bool) -> None:
        request = read_head(head)
        if not request.is_grpc:
            self._turn_away(stream, NO_GRPC)
            return
        if request.refusal is not None:
            self._turn_away(stream, ANSWER_HEAD + trailers(*request.refusal))
            return
        call = self._owner.begin(self, stream, request)
        if call is None:
            text = f"there is no method {request.path[:200]}"
            self._turn_away(stream, ANSWER_HEAD + trailers(grpc.StatusCode.UNIMPLEMENTED, text))
            return
        if call.is_refused:
            self._answer(call)
            if call.code() not in _OURS:
                self._connection.waste(_WASTED)
            return
        self._calls[stream] = call
        if call.method.takes_stream or ended:
            self._take(call, b"", ended)

    def _turn_away(self, stream: int, block: bytes) -> None:
        self._connection.refuse(stream, block)
        self._connection.waste(_WASTED)

    def received(self, stream: int, data: bytes, ended: bool) -> None:
        call = self._calls.get(stream)
        if call is not None:
            self._take(call, data, ended)

    def left(self, stream: int) -> None:
        call = self._calls.get(stream)
        if call is not None:
            self._end(call)

    def drained(self, stream: int) -> None:
        call = self._calls.get(stream)
        if call is None:
            return
        call.drained()
        if not self._connection.is_open(stream):
            self._end(call)

    def _take(self, call: RpcCall, data: bytes, ended: bool) -> None:
        """Bytes of messages."""
        try:
            call.arrived(len(data))
            messages = call.assembler.feed(data)
            if call.requests is not None:
                self._take_several(call, call.requests, messages, ended)
            else:
                self._take_one(call, messages, ended)
        except IngotError as error:
            call.fail(error)
            let_go(error)
            self._answer(call)

    def _take_one(self, call: RpcCall, messages: list[bytes], ended: bool) -> None:
        """NOTE: what is whole is answered, though its client may not have said yet that nothing follows."""
        has_message = call.has_begun or bool(messages)
        if call.has_begun + len(messages) > 1 or (has_message and not call.assembler.is_between):
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "the call carries more than one message", expected="one")
        if messages:
            call.message = messages[0]
            call.message_bytes = len(messages[0])
            self._owner.dispatch(call)
        elif has_message:
            return
        elif ended:
            text = "the call carries no message"
            raise IngotError(ErrorCode.INVALID_ARGUMENT, text, expected="one message of its request type")
        else:
            call.admit()
            self._grant(call)

    def _take_several(self, call: RpcCall, requests: RequestStream, messages: list[bytes], ended: bool) -> None:
        for message in messages:
            requests.put(message)
        if ended:
            if not call.assembler.is_between:
                raise IngotError(ErrorCode.INVALID_ARGUMENT, "the last message of the call is not whole")
            requests.end()
        else:
            self._resume(call)
        if not call.has_begun:
            self._owner.dispatch(call)

    # ---- of calls, from any thread

    def push(self, call: RpcCall, message: bytes) -> None:
        call.outgoing.append(message)
        self._owner.post(self._push, call)

    def finish(self, call: RpcCall) -> None:
        self._owner.post(self._answer, call)

    def drop(self, call: RpcCall) -> None:
        self._owner.post(self._drop, call)

    def resume(self, call: RpcCall) -> None:
        self._owner.post(self._resume, call)

    # ---- of calls, in the thread of the loop

    def _push(self, call: RpcCall) -> None:
        if call.is_over or not call.outgoing:
            return
        if not call.has_head:
            call.has_head = True
            self._connection.send_head(call.stream, ANSWER_HEAD)
        while call.outgoing:
            data = call.outgoing.popleft()
            call.handed(len(data))
            self._connection.send(call.stream, data)
        self._flush_soon()

    def _answer(self, call: RpcCall) -> None:
        """End a call with its status."""
        if call.is_over:
            return
        self._push(call)
        code = call.code() or grpc.StatusCode.OK
        end = trailers(code, call.details().decode(), call.trailing_metadata())
        if call.answer is not None and code is grpc.StatusCode.OK:
            call.has_head = True
            call.watched.enter(CallStage.ANSWERING, len(call.answer))
            self._connection.answer(call.stream, ANSWER_HEAD, framed(call.answer), end)
        elif call.has_head:
            call.watched.enter(CallStage.ANSWERING, call.outstanding)
            self._connection.send_last(call.stream, end)
        else:
            self._connection.refuse(call.stream, ANSWER_HEAD + end)
        if not self._connection.is_open(call.stream):
            self._end(call)
        self._flush_soon()

    def _drop(self, call: RpcCall) -> None:
        if not call.is_over:
            self._connection.reset(call.stream, Code.CANCEL)
            self._end(call)
            self._flush_soon()

    def _resume(self, call: RpcCall) -> None:
        """Let a stream go on; where there is no room for more of it, once there is."""
        if call.is_over:
            return
        try:
            self._grant(call)
        except IngotError:
            self._hold_up(call)
        else:
            self._flush_soon()

    def _grant(self, call: RpcCall) -> None:
        """Raises IngotError RESOURCE_EXHAUSTED: there is no room for more of it, and none about to be."""
        try:
            if count := call.granted():
                self._connection.grant(call.stream, count)
        except WouldWait:
            self._hold_up(call)

    def _hold_up(self, call: RpcCall) -> None:
        """NOTE: one question at a time, however many frames come meanwhile."""
        if not call.is_held_up:
            call.is_held_up = True
            self._owner.retry(self._resume_again, call)

    def _resume_again(self, call: RpcCall) -> None:
        call.is_held_up = False
        self._resume(call)

    def _end(self, call: RpcCall) -> None:
        self._calls.pop(call.stream, None)
        if not call.is_over:
            call.end()
            self._owner.ended(call)

    def _flush_soon(self) -> None:
        """What belongs together is written together."""
        if not self._is_receiving:
            self._flush()

    def _flush(self) -> None:
        if not self._is_introduced:
            return
        while out := self._connection.take():
            self._transport.write(b"".join(out))


def _peer(name: Any) -> str:
    """As gRPC writes it: ``ipv4:10.0.0.1:5000``, ``ipv6:%5B::1%5D:5000``, ``unix:``."""
    if not isinstance(name, tuple):
        return "unix:"
    host, port = name[0].removeprefix("::ffff:"), name[1]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
