"""The requests of one connection as they come: head, who answers it, body."""

from __future__ import annotations

import time
from typing import NamedTuple

from shared_ir.errors import IngotError
from shared_ir.service_kit.http.message import Admission, Application, HttpRequest, HttpResponse
from shared_ir.service_kit.http1.body import coding_of, declared_length, has_body, read_body
from shared_ir.service_kit.http1.head import Http1Head, read_head
from shared_ir.service_kit.http1.source import ByteSource, Need, Reading
from shared_ir.service_kit.memory.room import SMALL_BYTES, Guest, no_room
from shared_ir.service_kit.waiting import WouldWait

Body = bytes | bytearray | memoryview
_ROOM_SECONDS = 0.5
"""For so long a body waits for room that is about to be free."""
_MOST_KNOWN = 4096
"""Bytes of a head that is remembered: the next one of the same client is the same, as a rule."""


class Whole(NamedTuple):
    """A request that has come; a refused one has an answer, and no body."""

    head: Http1Head
    admission: Admission | None
    body: Body
    answer: HttpResponse | None
    keeps: bool
    """Whether another one may follow it."""


class ArrivingRequests:
    def __init__(self, application: Application, guest: Guest, peer: str) -> None:
        self.source = ByteSource()
        self.head: Http1Head | None = None
        self.admitted: HttpRequest | None = None
        """What was admitted, until its body is there."""
        self.expects_continue = False
        """Whether its client waits for a word before it sends more."""
        self._application = application
        self._guest = guest
        self._peer = peer
        self._known: tuple[bytes, Http1Head] | None = None
        self._reading: Reading[Whole | None] | None = None
        self._short_since: float | None = None
        self._begun = self._few = 0
        """Where the request began, and bytes of its body that are too few to be counted, unless they stay."""
        self._head_bytes: int | None = None

    @property
    def held(self) -> int:
        """Bytes of a request that is not whole, as far as they may not be counted."""
        head = self.source.read - self._begun if self._head_bytes is None else self._head_bytes
        return head + self._few + len(self.source)

    @property
    def has_begun(self) -> bool:
        return self._reading is not None or len(self.source) > 0

    def read(self) -> Whole | Need | None:
        """The next request, once it is there; what it waits for; ``None`` where the stream has ended before it.

        Raises:
            HttpRefusal: it cannot be read.
            IngotError: there is no room for it.
        """
        if self._reading is None:
            self.head = self.admitted = None
            self._begun, self._few, self._head_bytes = self.source.read, 0, None
            self._reading = self._whole()
        try:
            return next(self._reading)
        except StopIteration as done:
            self._reading, self.admitted = None, None
            found: Whole | None = done.value
            return found

    def take(self, count: int) -> bool:
        """Whether there is room for so many bytes more of the body; raises IngotError where there is none, and none about to be."""
        try:
            self._guest.take_at_once(count)
        except WouldWait:
            now = time.monotonic()
            if self._short_since is None:
                self._short_since = now
            if now - self._short_since < _ROOM_SECONDS:
                return False
            self._short_since = None
            raise no_room(self._guest) from None
        self._short_since = None
        if count < SMALL_BYTES:
            self._few += count
        return True

    def _whole(self) -> Reading[Whole | None]:
        head = self._known_head()
        if head is None:
            head = yield from self._new_head()
        if head is None:
            return None
        self.head, self._head_bytes = head, self.source.read - self._begun
        request = HttpRequest(head.method, head.path, head.fields, peer=self._peer)
        admission = self._application.admit(request)
        if isinstance(admission, HttpResponse):
            return Whole(head, None, b"", admission, head.keeps and not has_body(head))
        self.admitted = request
        length = declared_length(head, admission.most_body)
        coding_of(head)
        self.expects_continue = length != 0 and head.fields.get("expect", "").lower() == "100-continue"
        body: Body = b""
        if length != 0:
            body = yield from read_body(self.source, length, admission.most_body, self)
        self.expects_continue = False
        return Whole(head, admission, body, None, head.keeps)

    def _new_head(self) -> Reading[Http1Head | None]:
        text = self.source.until(b"\r\n\r\n")
        head = yield from read_head(self.source)
        is_text = text is not None and len(text) <= _MOST_KNOWN and not text.startswith(b"\r\n")
        self._known = (text, head) if text is not None and is_text and head is not None else None
        return head

    def _known_head(self) -> Http1Head | None:
        """The next head, where it is that of the request before."""
        if self._known is None:
            return None
        text, head = self._known
        if not self.source.starts_with(text):
            return None
        self.source.take(len(text))
        return head

    def abandon(self, error: IngotError) -> None:
        """What has begun to come is answered with ``error``, and nothing follows it."""
        admitted = self.admitted
        self._drop()
        if admitted is not None:
            self._application.refused(admitted, error)

    def end(self) -> None:
        """Nothing comes any more."""
        self.source.has_ended = True
        self._drop()

    def _drop(self) -> None:
        if self._reading is not None:
            self._reading.close()
        self.admitted, self._reading = None, None
        self.source.clear()
