"""Processes are asked side by side, and it is told apart who is silent and who is not there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runtime_service.processes import parent
from runtime_service.processes.observing import Asked, Vital
from runtime_service.processes.told import own_socket
from shared_ir.errors import ErrorCode, IngotError

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Process 0 answers, 1 and 2 listen and are silent, 3 has ended, 4 has not begun to listen."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4)]
        for number, each in enumerate(sockets):
            each.bind(str(tmp_path / own_socket(number)))
            if number < 3:
                each.listen()

        def answer() -> None:
            accepted, _ = sockets[0].accept()
            with accepted:
                accepted.recv(1 << 16)
                accepted.sendall(_ANSWER)

        thread = threading.Thread(target=answer)
        thread.start()
        yield tmp_path
        thread.join()


def test_who_answers_is_heard_whoever_is_silent(folder: Path) -> None:
    found = Asked(folder, 5).all("/metrics")
    assert found.pop(0) == (b"ok", "text/plain")
    assert all(isinstance(each, IngotError) and each.code is ErrorCode.UNAVAILABLE for each in found.values())
    assert list(found) == [1, 2, 3, 4]


def test_who_is_silent_is_told_from_who_does_not_listen(folder: Path) -> None:
    vitals = [Vital.ANSWERS, Vital.SILENT, Vital.SILENT, Vital.ABSENT, Vital.ABSENT]
    assert list(Asked(folder, 5).vitals().values()) == vitals


@pytest.mark.parametrize(("vital", "looks"), [(Vital.SILENT, 6), (Vital.ABSENT, 60)])
def test_who_does_not_answer_often_enough_in_a_row_hangs(vital: Vital, looks: int) -> None:
    serving = parent._Serving(process=None, started=0.0)  # type: ignore[arg-type]
    assert not any(serving.note(vital) for _ in range(looks - 1))
    assert not serving.note(Vital.ANSWERS)
    assert [serving.note(vital) for _ in range(looks)] == [False] * (looks - 1) + [True]
