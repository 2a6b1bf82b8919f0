"""Streams whose messages are answered one by one: several at once, in their order.

The stream has a thread that reads; each of its messages is answered by a thread of the lane where single calls of that kind are, counts
there as one of them, and holds its own room. So a stream gets no more than as many calls would.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.calls.lanes import CallStage, Lane, ServerCall
from shared_ir.service_kit.calls.outlet import end_call
from shared_ir.service_kit.memory.room import RequestRoom
from shared_ir.service_kit.status import internal, let_go

_LOG = logging.getLogger(__name__)
_EXCHANGE = "ingot_exchange"
_F = TypeVar("_F", bound=Callable[..., Any])
_LOOK_SECONDS = 0.25
"""How often a stream that waits for its answers looks whether its client is still there."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one method.

    Attributes:
        most: messages of one stream that are answered at once; others are not read meanwhile.
        refused: from an error, and the message that it is of where that could be read, to the answer.
        key: messages of one stream with the same key are answered one after the other, in their order; those without one are not.
    """

    most: int
    refused: Callable[[IngotError, Any | None], Any]
    key: Callable[[Any], str] = lambda message: ""


def exchange(terms: Terms) -> Callable[[_F], _F]:
    """Marks a method of a servicer, ``(request, context) -> response``, that is called for each message of a stream."""

    def mark(method: _F) -> _F:
        setattr(method, _EXCHANGE, terms)
        return method

    return mark


def terms_of(method: Any) -> Terms | None:
    found = getattr(method, _EXCHANGE, None)
    return found if isinstance(found, Terms) else None


class Keeper(Protocol):
    """Counts the calls of a server."""

    @property
    def room(self) -> RequestRoom: ...

    def queue(self, lane: Lane, peer: str, /) -> None:
        """Raises IngotError RESOURCE_EXHAUSTED: too many wait for a thread of it."""

    def start(self, call: ServerCall, /) -> None: ...

    def finish(self, call: ServerCall, /) -> None: ...


@dataclass(frozen=True, slots=True)
class MessageHandling:
    """What becomes of a message: ``cost`` counts it, ``parse`` reads it, ``behaviour`` answers it in a block of ``answering``."""

    terms: Terms
    cost: Callable[[bytes], int]
    parse: Callable[[bytes], Any]
    behaviour: Callable[[Any, Any], Any]
    serialise: Callable[[Any], bytes]
    answering: Callable[[ServerCall], AbstractContextManager[None]]


class _Turn:
    """A message, and its answer once that is there; ``call`` is what it holds of the lane where it is answered, ``successor`` the message
    that waits for it to be answered."""

    __slots__ = ("answer", "call", "key", "message", "successor")

    def __init__(self, call: ServerCall) -> None:
        self.call = call
        self.message: Any = None
        self.key = ""
        self.answer: bytes | None = None
        self.successor: _Turn | None = None


class Exchange:
    """One stream. ``call`` is the stream itself: it holds the thread that reads, and no room."""

    def __init__(
        self,
        keeper: Keeper,
        method: MessageHandling,
        call: ServerCall,
        context: Any,
        send: Callable[[bytes | None], None],
    ) -> None:
        self._keeper = keeper
        self._method = method
        self._call = call
        self._context = context
        self._send = send
        self._lane = call.lane.work or call.lane
        self._changed = threading.Condition()
        self._turns: deque[_Turn] = deque()
        self._last: dict[str, _Turn] = {}
        """Of each key, while it is not answered."""
        self._is_sending = False
        call.farewell = self._farewell

    def run(self, messages: Iterable[bytes]) -> None:
        """Answer ``messages`` as they come, and end the stream after the last answer."""
        for data in messages:
            self._begin(data)
            del data  # the next one may be long in coming
            self._wait(self._method.terms.most)
        self._call.farewell = None
        self._wait(1)
        if self._context.is_active():
            end_call(self._context, self._send, None)

    def _farewell(self) -> None:
        """The server leaves, and the stream has nothing to answer; called from another thread."""
        if self._context.is_active():
            end_call(self._context, self._send, _leaving())

    def _wait(self, most: int) -> None:
        """Until fewer than ``most`` are to be answered, or nobody waits for them any more."""
        with self._changed:
            while len(self._turns) >= most and self._context.is_active():
                self._changed.wait(_LOOK_SECONDS)

    def _begin(self, data: bytes) -> None:
        turn = _Turn(ServerCall(self._lane, self._context, self._keeper.room))
        turn.call.enter(CallStage.OURS)
        self._call.earn(len(data))
        with self._changed:
            self._turns.append(turn)
            self._call.enter(CallStage.OURS)
        try:
            turn.call.hold(self._method.cost(data))
            turn.message = self._method.parse(data)
        except IngotError as error:
            self._give(turn, self._refusal(error, None), self._call)
            return
        if self._is_next(turn):
            self._submit(turn, self._call)

    def _is_next(self, turn: _Turn) -> bool:
        """Whether ``turn`` waits for no other."""
        turn.key = self._method.terms.key(turn.message)
        if not turn.key:
            return True
        with self._changed:
            before = self._last.get(turn.key)
            self._last[turn.key] = turn
            if before is not None:
                before.successor = turn
        return before is None

    def _after(self, turn: _Turn) -> _Turn | None:
        """Who has waited for ``turn``."""
        with self._changed:
            if turn.key and self._last.get(turn.key) is turn:
                del self._last[turn.key]
            return turn.successor

    def _submit(self, turn: _Turn, by: ServerCall) -> None:
        """To a thread of the lane; ``by`` is whose thread this is."""
        waiting: _Turn | None = turn
        while waiting is not None:
            try:
                self._keeper.queue(self._lane, self._call.peer)
                self._lane.executor.submit_for(self._call.peer, self._take, waiting)
                return
            except IngotError as error:
                refusal = error
            except RuntimeError:  # the lane has no threads any more
                refusal = _leaving()
            refused, waiting = waiting, self._after(waiting)
            self._give(refused, self._refusal(refusal, refused.message), by)

    def _take(self, turn: _Turn) -> None:
        """In a thread of the lane."""
        self._keeper.start(turn.call)
        try:
            answer = self._answered(turn)
            if (successor := self._after(turn)) is not None:
                self._submit(successor, turn.call)
            self._give(turn, answer, turn.call)
            turn.call.enter(CallStage.OURS)
        finally:
            self._keeper.finish(turn.call)

    def _answered(self, turn: _Turn) -> bytes:
        method = self._method
        try:
            with method.answering(turn.call):
                found = method.serialise(method.behaviour(turn.message, self._context))
                turn.call.guest.settle(len(found))
                return found
        except IngotError as error:
            return self._refusal(error, turn.message)
        except Exception as error:
            _LOG.exception("a message of a stream failed")
            let_go(error)
            return self._refusal(internal(error), turn.message)

    def _refusal(self, error: IngotError, message: Any | None) -> bytes:
        let_go(error)
        return self._method.serialise(self._method.terms.refused(error, message))

    def _give(self, turn: _Turn, answer: bytes, by: ServerCall) -> None:
        """The answer of ``turn`` is there: send what can be sent in order, unless another thread does; ``by`` is whose thread this is."""
        turn.answer = answer
        while (first := self._next()) is not None:
            assert first.answer is not None
            for call in (first.call, by):
                call.enter(CallStage.ANSWERING, len(first.answer))
            try:
                self._send(first.answer)
            finally:
                self._sent(first)

    def _next(self) -> _Turn | None:
        with self._changed:
            if self._is_sending or not self._turns or self._turns[0].answer is None:
                return None
            self._is_sending = True
            return self._turns[0]

    def _sent(self, turn: _Turn) -> None:
        turn.call.end()
        with self._changed:
            self._is_sending = False
            self._turns.popleft()
            self._call.enter(CallStage.OURS if self._turns else CallStage.ARRIVING)
            self._changed.notify_all()


def _leaving() -> IngotError:
    return IngotError(ErrorCode.UNAVAILABLE, "the server is shutting down", remedy="Retry against another replica.")
