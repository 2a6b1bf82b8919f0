"""A process of clients, each of which sends its next request when it has the answer to the last: ``python -m bench.load.client JSON``.

Says ``ready`` once all are connected, reads the window, and prints the latencies, in microseconds, of what was answered in it.
"""

from __future__ import annotations

import json
import selectors
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.load.connections import Connection, WrongAnswer, connection
from bench.load.requests import Question, question

READY = "ready"
_LOOK_AT = 16
"""Of so many answers one is compared with what it must be, and the first of each connection."""
_SILENT_SECONDS = 20.0


@dataclass(frozen=True)
class Work:
    """``kind`` is one of :data:`bench.load.requests.KINDS`, ``address`` a ``host:port``."""

    kind: str
    address: str
    connections: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Window:
    """Moments on ``time.monotonic``, which all processes of a machine share."""

    begin: float
    end: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def connected(work: Work) -> list[Connection]:
    return [connection(work.kind, work.address, question(work.kind).data) for _ in range(work.connections)]


def run(connections: Sequence[Connection], asked: Question, window: Window) -> list[float]:
    """Latencies in microseconds.

    Raises:
        WrongAnswer: also where the server is silent.
    """
    latencies: list[float] = []
    since: dict[Connection, float] = {}
    with selectors.EpollSelector() as selector:
        for each in connections:
            selector.register(each.socket, selectors.EVENT_READ, each)
            since[each] = time.monotonic()
            each.ask()
        looked, answered = 0, time.monotonic()
        while (now := time.monotonic()) < window.end:
            for key, _ in selector.select(0.1):
                body = key.data.receive()
                if body is None:
                    continue
                now = answered = time.monotonic()
                if window.begin <= now < window.end:
                    latencies.append((now - since[key.data]) * 1e6)
                looked += 1
                if (looked <= len(connections) or looked % _LOOK_AT == 0) and not asked.is_right(body):
                    raise WrongAnswer(f"{body[:200]!r}")
                since[key.data] = time.monotonic()
                key.data.ask()
            if now - answered > _SILENT_SECONDS:
                raise WrongAnswer("no answer")
    return latencies


def main() -> int:
    try:
        work = Work(**json.loads(sys.argv[1]))
        connections = connected(work)
        print(READY, flush=True)
        window = Window(**json.loads(sys.stdin.readline()))
        print(json.dumps([round(value, 1) for value in run(connections, question(work.kind), window)]))
    except (OSError, ValueError, LookupError, WrongAnswer) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
