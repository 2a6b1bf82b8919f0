"""What a connection holds of a frame, or of a header block, that does not come whole: there may be one on each of thousands."""

from __future__ import annotations

from shared_ir.errors import IngotError
from shared_ir.service_kit.http2.connection import Http2Connection
from shared_ir.service_kit.memory.room import GRACE_SECONDS, WAITING_BYTES, Guest, RequestRoom
from shared_ir.service_kit.waiting import WouldWait


class UnfinishedFrame:
    """Of one connection, looked at now and then: one that comes at once is not asked."""

    def __init__(self, connection: Http2Connection, room: RequestRoom) -> None:
        self._connection = connection
        self._room = room
        self._guest: Guest | None = None
        self._progress: object = None
        self._is_unwanted = False

    def may_stay(self, now: float, peer: str) -> bool:
        """Take the part of the room that it needs; False where there is none, or others need it, and its client has let us wait."""
        held, progress = self._connection.held, self._connection.progress
        if held < WAITING_BYTES:
            self.forget()
            return True
        guest = self._guest = self._guest or self._room.enter(peer, self._evict)
        if guest.waits_since is None or progress != self._progress:
            guest.waits_since, self._progress = now, progress
        try:
            guest.take_at_once(held - guest.held, WAITING_BYTES)
        except WouldWait:
            pass  # there may be room when it is looked at again
        except IngotError:
            return now - guest.waits_since <= GRACE_SECONDS
        return not self._is_unwanted

    def forget(self) -> None:
        """It has come, or never will."""
        if self._guest is not None:
            self._room.passed(self._guest.held)
            self._guest.leave()
        self._guest, self._is_unwanted = None, False

    def _evict(self) -> None:
        """From any thread."""
        self._is_unwanted = True
