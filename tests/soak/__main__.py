"""``python -m tests.soak --seconds 600``: a runtime service at 80 % of what it can, while models come, go and are swapped, clients hang
up and requests are wrong.

No good request may fail, none may be answered wrongly, no fault of others may be answered as one of the server, and the memory of the
process must be what it was.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.callers import CALLERS, Caller, Tally
from tests.soak.rig import Rig, rig
from tests.soak.trouble import TROUBLES, Trouble

LOAD = 0.8
MOST_GROWTH = 0.05
_CALLERS_OF_A_KIND = 2
_MEASURE_SECONDS, _QUIET_SECONDS = 3.0, 3.0
"""How long it is looked what the service can; how long it has for memory to go back to the system."""


@dataclass
class Report:
    """``can`` and ``had`` are good requests a second: without a pause and as they were; ``before`` and ``after`` megabytes, and
    ``threads`` and ``descriptors`` how many the process had then."""

    can: float = 0.0
    had: float = 0.0
    tally: Tally = field(default_factory=Tally)
    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    threads: tuple[int, ...] = ()
    descriptors: tuple[int, ...] = ()

    @property
    def growth(self) -> float:
        return self.after / self.before - 1

    def lines(self) -> list[str]:
        beside = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        return [
            f"{self.tally.answered} good requests, {self.had:.0f} a second where {self.can:.0f} can be; "
            f"{len(self.tally.failed)} failed, {len(self.tally.wrong)} wrong",
            f"beside them {beside}",
            f"memory {self.before:.1f} MB, then {self.after:.1f} MB: {self.growth:+.1%}; "
            f"threads {self.threads}, descriptors {self.descriptors}",
            *(self.tally.failed + self.tally.wrong + self.faults)[:20],
        ]

    def is_good(self) -> bool:
        return not (self.tally.failed or self.tally.wrong or self.faults) and self.growth <= MOST_GROWTH


def soak(made: Rig, seconds: float, warm: float, seed: int) -> Report:
    """``warm`` seconds of everything before the memory is looked at for the first time, ``seconds`` between then and the second time."""
    running, over, report = threading.Event(), threading.Event(), Report()
    kinds = [kind for kind in CALLERS for _ in range(_CALLERS_OF_A_KIND)]
    callers = [Caller(made, kind, seed + number, running, over) for number, kind in enumerate(kinds)]
    with _threads([caller.thread for caller in callers], over):
        running.set()
        report.can = _measured(callers)
        troubles = [Trouble() for _ in TROUBLES]
        threads = [
            threading.Thread(target=_repeat, args=(made, trouble, *each, seed + number, running, over), daemon=True)
            for number, (trouble, each) in enumerate(zip(troubles, TROUBLES, strict=True))
        ]
        with _threads(threads, over):
            time.sleep(warm)
            report.before = _quiet(made, running, report)
            asked, began = _answered(callers), time.monotonic()
            time.sleep(seconds)
            report.had = (_answered(callers) - asked) / (time.monotonic() - began)
            report.after = _quiet(made, running, report)
    for tally in (*(caller.tally for caller in callers), *(trouble.tally for trouble in troubles)):
        report.tally.answered += tally.answered
        report.tally.failed += tally.failed
        report.tally.wrong += tally.wrong
    for trouble in troubles:
        report.done += trouble.done
        report.faults += trouble.faults
    status = made.end()
    report.faults += [f"exit status {status}"] * bool(status) + made.complaints()
    return report


def _measured(callers: Sequence[Caller]) -> float:
    """Requests a second without a pause; from then on each caller leaves a fifth of its own away."""
    time.sleep(1.0)
    counts = [caller.tally.answered for caller in callers]
    time.sleep(_MEASURE_SECONDS)
    rates = [(caller.tally.answered - count) / _MEASURE_SECONDS for caller, count in zip(callers, counts, strict=True)]
    for caller, rate in zip(callers, rates, strict=True):
        caller.pause = 1 / (LOAD * max(rate, 1.0))
    return sum(rates)


def _answered(callers: Sequence[Caller]) -> int:
    return sum(caller.tally.answered for caller in callers)


def _quiet(made: Rig, running: threading.Event, report: Report) -> float:
    """Megabytes once nobody has asked for a while."""
    running.clear()
    time.sleep(_QUIET_SECONDS)
    found = made.resident()
    report.threads += (made.counted("task"),)
    report.descriptors += (made.counted("fd"),)
    running.set()
    return found


def _repeat(
    made: Rig,
    trouble: Trouble,
    act: Callable[[Rig, random.Random, Trouble], None],
    pause: float,
    seed: int,
    running: threading.Event,
    over: threading.Event,
) -> None:
    draw = random.Random(seed)
    while not over.is_set():
        if not running.wait(0.1):
            continue
        try:
            act(made, draw, trouble)
        except Exception as error:
            trouble.faults.append(f"{act.__name__}: {error!r}"[:500])
        over.wait(draw.uniform(0, 2 * pause))


@contextmanager
def _threads(threads: Sequence[threading.Thread], over: threading.Event) -> Iterator[None]:
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--warm", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ingot-soak-") as folder, rig(Path(folder)) as made:
        report = soak(made, given.seconds, given.warm, given.seed)
    print(f"seed {given.seed}", *report.lines(), sep="\n")
    return int(not report.is_good())


if __name__ == "__main__":
    sys.exit(main())
