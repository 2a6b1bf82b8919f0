"""A server as MLCommons' LoadGen sees one: samples come by their numbers, and each is told of when its answer has come."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from bench.load.connections import Connection, WrongAnswer, connection
from bench.load.requests import Question, question

SAMPLES = 256
"""Different tensors."""


class ServerUnderTest:
    """``connections`` requests are on their way at once; those that are issued beyond that wait here.

    Args:
        complete: is told the id of each sample whose answer has come, also of a wrong one: LoadGen waits for all.
    """

    def __init__(self, kind: str, address: str, connections: int, complete: Callable[[int], None]) -> None:
        self.wrong: list[str] = []
        """What was answered wrongly, or not at all."""
        self._questions: list[Question] = [question(kind, _values(number)) for number in range(SAMPLES)]
        self._complete = complete
        self._issued: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        made = [connection(kind, address, self._questions[0].data) for _ in range(connections)]
        self._threads = [threading.Thread(target=self._serve, args=(each,), daemon=True) for each in made]
        for thread in self._threads:
            thread.start()

    def issue(self, samples: Sequence[tuple[int, int]]) -> None:
        """Samples by id and number."""
        for sample in samples:
            self._issued.put(sample)

    def close(self) -> None:
        for _ in self._threads:
            self._issued.put(None)
        for thread in self._threads:
            thread.join(30)

    def _serve(self, own: Connection) -> None:
        while (sample := self._issued.get()) is not None:
            identity, number = sample
            asked = self._questions[number]
            try:
                own.data = asked.data
                own.ask()
                while (body := own.receive()) is None:
                    pass
                if not asked.is_right(body):
                    raise WrongAnswer(f"{body[:200]!r} for sample {number}")
            except (OSError, ValueError, LookupError, WrongAnswer) as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
            self._complete(identity)
        with suppress(OSError):
            own.socket.close()


def _values(number: int) -> tuple[float, ...]:
    return tuple(number + index / 16 for index in range(16))
