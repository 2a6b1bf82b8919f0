"""The ``onnx`` package's own node tests through Ingot: ``python -m ingot.conformance``.

Every case runs in a child process, so a crash is an outcome and not the end. A case *passes* when its outputs match
under onnx's own comparison; it is *skipped* when the compiler refuses it with a typed error; anything else *failed*.
:mod:`ingot.conformance_known` lists the cases that are known not to pass, with reasons: the exit status says whether it is right.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner, _normalize_tensor

from compiler_service.compiler.fallback import OptimisationFaultWarning
from compiler_service.compiler.program.kernels import ScheduleFaultWarning
from ingot.conformance_known import KNOWN
from shared_ir.errors import Blame, IngotError
from shared_ir.storage.files import write_atomically

CASE_SECONDS = 60.0
"""Seconds for one case."""
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_Case = Any


@dataclass(frozen=True)
class Result:
    """How a case ended: ``passed``, ``skipped`` (refused by the compiler), or ``wrong``, ``error``, ``crash``, ``timeout``."""

    name: str
    kind: str
    operators: tuple[str, ...]
    outcome: str
    message: str
    seconds: float


@dataclass
class _Child:
    """A process that runs cases, and the case that it is at."""

    process: ForkProcess
    pipe: Connection
    index: int = -1
    started: float = 0.0

    def give(self, index: int) -> None:
        self.index, self.started = index, time.monotonic()
        self.pipe.send(index)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def load_cases(kinds: Sequence[str], pattern: str) -> list[tuple[str, _Case]]:
    """Kind and case, sorted by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(kind, case) for kind in kinds for case in load_model_tests(kind=kind)]
    return sorted((item for item in found if re.search(pattern, item[1].name)), key=lambda item: item[1].name)


def run_cases(cases: Sequence[tuple[str, _Case]], jobs: int) -> list[Result]:
    """All results, in the order of the cases. Must be called from a process with one thread."""
    results: dict[int, Result] = {}
    waiting = collections.deque(range(len(cases)))
    children = [_start(cases) for _ in range(min(jobs, len(cases)))]
    for child in children:
        child.give(waiting.popleft())
    while children:
        ready = multiprocessing.connection.wait([child.pipe for child in children], timeout=1.0)
        for child in list(children):
            outcome = _outcome(child, child.pipe in ready)
            if outcome is None:
                continue
            kind, case = cases[child.index]
            seconds = round(time.monotonic() - child.started, 3)
            results[child.index] = Result(case.name, kind, operators_of(case), *outcome, seconds)
            children.remove(child)
            if outcome[0] in ("crash", "timeout"):
                child.end()
                child = _start(cases)
            if waiting:
                child.give(waiting.popleft())
                children.append(child)
            else:
                child.end()
    return [results[index] for index in range(len(cases))]


def _outcome(child: _Child, ready: bool) -> tuple[str, str] | None:
    """Outcome and message of the case that ``child`` is at, None while it runs."""
    if ready:
        try:
            answer: tuple[str, str] = child.pipe.recv()
            return answer
        except EOFError:
            child.process.join()
            return "crash", f"exit status {child.process.exitcode}"
    if time.monotonic() - child.started > CASE_SECONDS:
        return "timeout", f"{CASE_SECONDS:.0f} s"
    return None


def _start(cases: Sequence[tuple[str, _Case]]) -> _Child:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(cases, there, here), daemon=True)
    process.start()
    there.close()
    return _Child(process, here)


def _serve(cases: Sequence[tuple[str, _Case]], pipe: Connection, other: Connection) -> None:
    other.close()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    for fault in (OptimisationFaultWarning, ScheduleFaultWarning):  # a case passes as it is compiled, or not at all
        warnings.simplefilter("error", fault)
    while True:
        try:
            index = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(run_case(cases[index][1]))


def run_case(case: _Case) -> tuple[str, str]:
    """Outcome and message."""
    from ingot.backend import IngotBackend

    try:
        model, data_sets = case_data(case)
        prepared = IngotBackend.prepare(model)
    except IngotError as error:
        outcome = "skipped" if error.blame is Blame.USER else "error"
        return outcome, f"{error.code.value}: {error}"[:500]
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"[:500]
    try:
        for inputs, expected in data_sets:
            Runner.assert_similar_outputs(expected, list(prepared.run(inputs)), case.rtol, case.atol)
    except AssertionError as error:
        return "wrong", str(error).strip()[:500]
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"[:500]
    return "passed", ""


def case_data(case: _Case) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """The model of a case, and pairs of inputs and expected outputs."""
    if case.model is not None:
        normal = [([_normalize_tensor(i) for i in a], [_normalize_tensor(o) for o in b]) for a, b in case.data_sets]
        return case.model, normal
    folder = Path(case.model_dir)
    model = onnx.load(str(folder / "model.onnx"))
    sets = [
        (_read(directory, "input", model.graph.input), _read(directory, "output", model.graph.output))
        for directory in sorted(folder.glob("test_data_set_*"))
    ]
    return model, sets


def _read(directory: Path, kind: str, infos: Any) -> list[Any]:
    values: list[Any] = []
    for number in range(len(list(directory.glob(f"{kind}_*.pb")))):
        Runner._load_proto(None, str(directory / f"{kind}_{number}.pb"), values, infos[number].type)
    return values


def operators_of(case: _Case) -> tuple[str, ...]:
    """Operators in the graph of a case; of cases on disk only that they are models."""
    if case.model is None:
        return ("model",)
    return tuple(sorted({f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in case.model.graph.node}))


def summary(results: Sequence[Result]) -> str:
    """Counts of the refusals and failures by their reason; the last line holds the totals."""
    counts = collections.Counter(result.outcome for result in results)
    failed = [result for result in results if result.outcome not in ("passed", "skipped")]
    lines = [f"failed: {r.name}: {r.outcome}: {KNOWN.get(r.name) or _first_line(r.message)}" for r in failed]
    lines += [f"unexpected: {line}" for line in unexpected(results)]
    reasons = collections.Counter(r.message.partition(":")[0] for r in results if r.outcome == "skipped")
    lines += [f"skipped: {count} refused with {reason}" for reason, count in reasons.most_common()]
    lines.append(f"{counts['passed']} passed, {len(failed)} failed, {counts['skipped']} skipped")
    return "\n".join(lines)


def unexpected(results: Sequence[Result]) -> list[str]:
    """Outcomes that :data:`KNOWN` does not say, each with its case."""
    wrong = [r for r in results if (r.outcome == "passed") is (r.name in KNOWN)]
    return [f"{r.name}: {r.outcome}{', though it is listed' if r.name in KNOWN else ''}" for r in wrong]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a case ended otherwise than it is known to."""
    parser = argparse.ArgumentParser(prog="python -m ingot.conformance", description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which of onnx's cases")
    parser.add_argument("--filter", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=Path("conformance.json"))
    given = parser.parse_args(arguments)
    cases = load_cases(given.kinds.split(","), given.filter)
    if not cases:
        print("no case has such a name", file=sys.stderr)
        return 2
    results = run_cases(cases, given.jobs)
    document = {"onnx": onnx.__version__, "results": [asdict(result) for result in results]}
    write_atomically(given.out, json.dumps(document, indent=1).encode() + b"\n")
    print(summary(results))
    return 1 if unexpected(results) else 0


if __name__ == "__main__":
    sys.exit(main())
