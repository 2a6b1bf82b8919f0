"""Plans with one value changed, loaded and run over guarded memory in a child that may die of it.

A library that says which plan it is of runs with no other. One that was built before it did is taken at its word for what its kernels
touch; that the executors themselves stay inside is asked by touching every byte that a plan gives to a kernel, instead of running it.
"""

from __future__ import annotations

import copy
import ctypes
import faulthandler
import gc
import json
import os
import random
import resource
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import IO, Any

import numpy as np

from runtime_service.arrays import Array
from runtime_service.executors import graph, signature, steps
from runtime_service.executors.library import Library
from runtime_service.executors.stop import Stop
from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.plan.program import Launch
from tests.guard.arrays import empty, guarded
from tests.guard.runs import in_a_child
from tests.oracle.case import Feeds

Place = tuple[Any, ...]
_NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    64,
    255,
    1 << 12,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 63,
    1 << 70,
)
_JUNK: tuple[Any, ...] = (None, True, False, 1.5, "", "x", "n", "#0", "#3", [], {}, [0], [[0]])
_SECONDS = 0.3
"""After which a run is stopped."""
_MEMORY_BYTES = 3 << 30
_FAULTS = (ErrorCode.COMPILER_FAULT, ErrorCode.INTERNAL)


def changed_plans(text: str, seed: int, count: int) -> Iterator[tuple[str, str]]:
    """What was done, and the plan: one value of ``text`` changed, taken away, doubled, or exchanged with one of its kind."""
    generator = random.Random(seed)
    document = json.loads(text)
    found = places(document)
    for _ in range(count):
        changed, place = copy.deepcopy(document), generator.choice(found)
        what = _change(changed, place, found, generator)
        yield f"{'/'.join(map(str, place))}: {what}", json.dumps(changed)


def places(value: Any, path: Place = ()) -> list[Place]:
    """The way to every value inside a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key, item in items for p in places(item, (*path, key))]


def _change(document: Any, place: Place, others: Sequence[Place], generator: random.Random) -> str:
    holder, last = _holder(document, place), place[-1]
    before = holder[last]
    match generator.randrange(10):
        case 0:
            del holder[last]
            return "taken away"
        case 1 if isinstance(holder, list):
            holder.insert(last, copy.deepcopy(before))
            return "doubled"
        case 2:
            holder[last] = generator.choice(_JUNK)
        case 3 | 4:
            same = [
                o for o in generator.sample(others, min(50, len(others))) if o[-1] == last or type(o[-1]) is type(last)
            ]
            other = generator.choice(same or [place])
            holder[last] = copy.deepcopy(_holder(document, other)[other[-1]])
        case _ if isinstance(before, int):
            holder[last] = generator.choice((*_NUMBERS, before + 1, before - 1, before * 2, -before, before // 2))
        case _:
            holder[last] = generator.choice((*_NUMBERS, *_JUNK))
    return f"{before!r:.60} -> {holder[last]!r:.60}"


def _holder(document: Any, place: Place) -> Any:
    for key in place[:-1]:
        document = document[key]
    return document


def findings(artifact: CompiledArtifact, feeds: Feeds, seed: int, count: int, *, older: bool) -> list[str]:
    """What is wrong: one line each. ``older``: the library does not say which plan it is of."""
    plans = list(changed_plans(write_plan(artifact.plan), seed, count))
    found: list[str] = []
    first = 0
    while first < len(plans):
        begun, lines, status = in_a_child(partial(_serve, artifact, feeds, plans, first, older), first)
        found += lines
        if status == 0:
            break
        what = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {status}"
        found.append(f"{plans[begun][0]}: {what}")
        first = begun + 1
    return found


def _serve(
    artifact: CompiledArtifact, feeds: Feeds, plans: Sequence[tuple[str, str]], first: int, older: bool, pipe: IO[str]
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()
    gc.freeze()  # what is there already need not be looked at again
    signature._empty = empty
    for module in (graph, steps):
        module.__dict__["aligned_bytes"] = _guarded_bytes
    if older:
        Library.plan_digest = property(lambda self: "")  # type: ignore[method-assign,assignment]
        graph.GraphExecutor._launch = _touch  # type: ignore[method-assign]
    for number in range(first, len(plans)):
        gc.collect()  # guards take room among the addresses
        print(json.dumps({"begun": number, "found": ""}), file=pipe, flush=True)
        kinds: tuple[ExecutorKind, ...] = ("aot", "graph")
        for kind in kinds:
            fault = _fault(artifact, feeds, plans[number][1], kind)
            if fault:
                print(
                    json.dumps({"begun": number, "found": f"{plans[number][0]}: {kind}: {fault}"}),
                    file=pipe,
                    flush=True,
                )


def _guarded_bytes(size: int, alignment: int = 64) -> Array:
    return empty(-(-size // alignment) * alignment, np.uint8)[:size]


def _touch(self: Any, step: Launch, resolved: steps.Resolved, stop: int = 0) -> None:
    for address, size in zip(resolved.buffers, resolved.sizes, strict=False):
        ctypes.string_at(address, size)


def _fault(artifact: CompiledArtifact, feeds: Feeds, text: str, kind: ExecutorKind) -> str:
    """What must not be said, if anything."""
    stop = Stop()
    timer = threading.Timer(_SECONDS, stop.set)
    timer.start()
    try:
        with load_model(replace(artifact, plan=read_plan(text)), threads=1, executor=kind) as model:
            model.run({name: guarded(np.asarray(array)) for name, array in feeds.items()}, stop)
    except IngotError as error:
        return f"{error.code}: {error}" if error.code in _FAULTS else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        timer.cancel()
    return ""
