"""Parts of onnx's cases, run by a process that has one thread: its children are forks, and what another thread held would stay held."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

from ingot.conformance import KINDS, Result, load_cases, operators_of, run_cases

SHARES = 24
"""Parts of the whole suite, each an item of its own; cases of one operator are in the same one."""

PARTS = 5
"""Of a share; the first of them has a case of every operator, and every fifth of those that have many."""

FEWEST_CASES = 2000
"""The package has more: whoever loaded a selection of them before us would leave us with that."""


@cache
def every_case() -> tuple[tuple[str, Any], ...]:
    found = tuple(load_cases(KINDS, ""))
    assert len(found) >= FEWEST_CASES
    return found


def cases_of(share: int, part: int) -> list[tuple[str, Any]]:
    seen: Counter[str] = Counter()
    found = []
    for kind, case in every_case():
        family = _family(case)
        if crc32(family.encode()) % SHARES == share:
            if seen[family] % PARTS == part:
                found.append((kind, case))
            seen[family] += 1
    assert found
    return found


def _family(case: Any) -> str:
    """Its operators."""
    return case.name if case.model is None else ", ".join(operators_of(case))


class Shares:
    """A process that runs shares."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def names(self) -> set[str]:
        self._pipe.send(None)
        found: set[str] = self._pipe.recv()
        return found

    def run(self, share: int, part: int) -> list[Result]:
        self._pipe.send((share, part))
        results: list[Result] = self._pipe.recv()
        return results


@contextmanager
def shares() -> Iterator[Shares]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,))
    process.start()
    there.close()
    try:
        yield Shares(here)
    finally:
        here.close()
        process.join()


def _serve(pipe: Connection) -> None:
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        pipe.send({case.name for _, case in every_case()} if asked is None else _results(cases_of(*asked)))


def _results(cases: list[tuple[str, Any]]) -> list[Result]:
    results = run_cases(cases, 1)
    assert len(results) == len(cases)
    return results
