"""The child that runs trials: generated code that has not been tried yet must not run in the compiler's process.

Frames (:mod:`compiler_service.compiler.codegen.toolchain.frames`) on standard input, answers on standard output:

- ``{"op": "content", "digest": D}`` and bytes: kept for trials that name it, until ``{"op": "forget"}``; no answer.
- ``{"op": "run", "seconds": S, "trials": [...]}`` and the objects of all trials, one after the other: ``{"began": n}`` before the
  first run of trial n, ``{"results": [sizes]}`` and bytes after it, and at last ``{"rounds": [[seconds, ..], ..]}``. A trial with the
  ``key`` of one that ran lately is not loaded again, and its results are not handed out again.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from compiler_service.compiler.codegen.toolchain.frames import read_frame, write_frame
from compiler_service.compiler.codegen.toolchain.jit import LoadedObject
from compiler_service.compiler.tune.measuring.parts import parts

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS)
_GOES_ON = ctypes.c_int32(0)
_ALIGNMENT_BYTES = 64
_ROUND_SECONDS = 0.002
"""Length of a round of a short kernel, in seconds: a hundred times what the clock and the call from Python cost."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 200
_SMALL_SPREAD = 0.01
"""Half the distance between the quartiles of the rounds, relative to their median, from which on no more rounds are run."""
_MOST_MEMORY_BYTES = 8 << 30
_KEPT_TRIALS = 2
"""Trials that stay loaded: the default schedule, which each candidate is measured beside."""


class RunningTrial:
    """One candidate, loaded, with memory of its own."""

    def __init__(self, trial: Mapping[str, Any], code: Sequence[bytes], contents: Mapping[str, np.ndarray]) -> None:
        launches = trial["launches"]
        self._loaded = [LoadedObject(data, [own["symbol"]]) for data, own in zip(code, launches, strict=True)]
        copies = max(b["copies"] for b in trial["buffers"])
        self._buffers = [self._memory(b, contents) for b in trial["buffers"]]
        self._results = [n for n, b in enumerate(trial["buffers"]) if b["is_result"]]
        self._kept: list[Any] = []
        calls = list(zip(self._loaded, launches, strict=True))
        self._turns = [[self._call(loaded, launch, turn) for loaded, launch in calls] for turn in range(copies)]
        self._turn = 0
        self._times = 1

    def _memory(self, buffer: Mapping[str, Any], contents: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        content = contents[buffer["content"]] if buffer["content"] else None
        found = []
        for _ in range(buffer["copies"]):
            memory = aligned(buffer["size"])
            if content is not None:
                memory[: content.size] = content
            found.append(memory)
        return found

    def _call(self, loaded: LoadedObject, launch: Mapping[str, Any], turn: int) -> tuple[Any, tuple[int, ...]]:
        own = [self._buffers[n] for n in launch["buffers"]]
        pointers = (ctypes.c_void_p * max(1, len(own)))(*(b[turn % len(b)].ctypes.data for b in own))
        symbols = (ctypes.c_int64 * max(1, len(launch["symbols"])))(*launch["symbols"])
        scratch = aligned(launch["scratch"])
        self._kept += [pointers, symbols, scratch]
        addresses = ctypes.addressof(pointers), ctypes.addressof(symbols)
        call = _SIGNATURE(loaded.address(launch["symbol"]))
        return call, (*addresses, 0, launch["tasks"], scratch.ctypes.data, ctypes.addressof(_GOES_ON))

    def run(self, times: int) -> float:
        """Seconds of one run, of ``times`` of them, each with the next copies: those that this thread had a core for."""
        start = time.thread_time()
        for _ in range(times):
            for call, arguments in self._turns[self._turn]:
                call(*arguments)
            self._turn = (self._turn + 1) % len(self._turns)
        return (time.thread_time() - start) / times

    def results(self) -> list[bytes]:
        """What the first copy of each result holds."""
        return [self._buffers[n][0].tobytes() for n in self._results]

    def warm_up(self) -> None:
        once = min(self.run(1), self.run(1))
        self._times = max(1, int(_ROUND_SECONDS / max(once, 1e-7)))

    def round(self) -> float:
        """Seconds of one run, of some milliseconds of them."""
        return self.run(self._times)

    def close(self) -> None:
        self._turns.clear()
        for loaded in self._loaded:
            loaded.close()


class MeasuringProcess:
    """Keeps contents, and runs trials."""

    def __init__(self, replies: BinaryIO) -> None:
        self._replies = replies
        self._contents: dict[str, np.ndarray] = {}
        self._kept: dict[str, RunningTrial] = {}

    def handle(self, request: Mapping[str, Any], body: bytes) -> None:
        if request["op"] == "content":
            self._contents[request["digest"]] = np.frombuffer(body, np.uint8)
        elif request["op"] == "forget":
            self._contents.clear()
        else:
            self._run(request["trials"], body, request["seconds"])

    def _run(self, trials: Sequence[Mapping[str, Any]], body: bytes, seconds: float) -> None:
        running: list[RunningTrial] = []
        objects = iter(parts(body, [size for trial in trials for size in trial["sizes"]]))
        for number, trial in enumerate(trials):
            code = [next(objects) for _ in trial["sizes"]]
            write_frame(self._replies, {"began": number})
            own = self._kept.pop(trial["key"], None)
            if own is not None and len(trials) == 1:  # alone it is asked for what it computes, by whoever asks first
                own.close()
                own = None
            results: list[bytes] = []
            if own is None:
                own = RunningTrial(trial, code, self._contents)
                own.run(1)
                results = own.results()
            write_frame(self._replies, {"results": [len(r) for r in results]}, b"".join(results))
            running.append(own)
        rounds = timed(running, seconds)
        write_frame(self._replies, {"rounds": rounds})
        self._keep({trial["key"]: own for trial, own in zip(trials, running, strict=True)}, running)

    def _keep(self, by_key: Mapping[str, RunningTrial], running: Sequence[RunningTrial]) -> None:
        """The first of the trials stays loaded; the others, and what was kept longest, do not."""
        first = next(iter(by_key))
        for own in running:
            if own is not by_key[first]:
                own.close()
        self._kept[first] = by_key[first]
        while len(self._kept) > _KEPT_TRIALS:
            self._kept.pop(next(iter(self._kept))).close()


def timed(running: Sequence[RunningTrial], seconds: float) -> list[list[float]]:
    """Seconds of rounds of all trials in turns until each is steady, or the time is over; each gets at least a few."""
    rounds: list[list[float]] = [[] for _ in running]
    for own in running:
        own.warm_up()
    end = time.perf_counter() + seconds * len(running)
    for number in range(_MOST_ROUNDS):
        order = range(len(running)) if number % 2 == 0 else reversed(range(len(running)))  # nobody is always the first
        for place in order:
            rounds[place].append(running[place].round())
        is_over = time.perf_counter() >= end
        if (number + 1 >= _FEWEST_ROUNDS and (is_over or all(map(_is_steady, rounds)))) or (is_over and number >= 2):
            break
    return rounds


def _is_steady(rounds: Sequence[float]) -> bool:
    low, middle, high = statistics.quantiles(rounds, n=4)
    return (high - low) / 2 <= _SMALL_SPREAD * middle


def aligned(size: int) -> np.ndarray:
    """``size`` bytes of zeros at a 64-byte boundary."""
    memory = np.zeros(size + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + size]


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    process = MeasuringProcess(replies)
    while (frame := read_frame(sys.stdin.buffer.read)) is not None:
        process.handle(*frame)


if __name__ == "__main__":
    main()
