"""SIGTERM and SIGINT as something to wait for, and as an end that leaves nothing behind."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Takes over the stop signals of the process; make it in the main thread.

    NOTE: a handler that sets an Event can deadlock: it runs in the main thread between any two bytecodes, also while
    that thread is inside ``Event.wait`` and holds its lock. Bytes through a socket have no lock to wait for.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)

    def wait(self) -> signal.Signals:
        """The next stop signal; signals that came before are not lost."""
        while True:
            number = signal.Signals(self._reader.recv(1)[0])
            if number in STOP_SIGNALS:
                return number


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as an exception does, so that its files and programs are taken down; further ones wait for that.

    Outside of the main thread, which alone has handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)  # as shells say it

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
