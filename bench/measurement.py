"""Interleaved rounds: every engine on the same model and inputs, one after the other, again and again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.accuracy import TOLERANCE, Accuracy, compare
from bench.arrays import read_arrays, write_arrays
from bench.inputs import Array, Shape, choose_shapes, make_inputs, read_inputs
from bench.neighbour import Neighbour
from bench.process import COMMAND_SECONDS, EngineFailed, EngineProcess
from bench.timing import Slice, Timing, summarize, typical

OURS = "ingot"
PEERS = ("onnxruntime", "openvino")
ENGINES = (OURS, *PEERS)
OPENVINO_DEFAULT = "openvino-default"
"""OpenVINO that is told no precision: what its users get. It is timed beside the others and is no peer, since its answers differ."""
REFERENCE = "reference"
"""The model in double precision; it runs once and is not timed."""
_REFERENCES = (REFERENCE, *PEERS, OURS)
"""Whose outputs the others are compared with: the first of these that ran."""
_REFERENCE_SECONDS = 600.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        rounds: turns of every engine.
        slice_seconds, least: a turn lasts this long, and takes this many runs at any rate.
        shapes: keyed by ``input`` or ``model:input``.
        values: input name -> number to fill it with.
        dynamic: compile for the model's own, symbolic shapes.
        tolerance: the largest difference of outputs, relative to their largest element, that counts as the same answer.
        exact: compare outputs with the model in double precision, where that can be had, rather than with each other.
        neighbour: time every engine beside a process that takes a core in bursts as well.
    """

    engines: Sequence[str] = ENGINES
    threads: int = 1
    rounds: int = 9
    slice_seconds: float = 0.25
    least: int = 3
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    dynamic: bool = False
    tolerance: float = TOLERANCE
    exact: bool = True
    neighbour: bool = False


@dataclass(frozen=True)
class EngineResult:
    """One engine on one model: either ``error`` or the rest.

    Attributes:
        facts: versions, seconds to load or compile, bytes; see the engine.
        beside: its timing beside a neighbour, where one was asked for; of each turn the mean, since runs beside bursts are of two kinds.
        alone: the same without the neighbour.
        accuracy: against the reference; None for the reference itself.
    """

    engine: str
    error: str = ""
    timing: Timing | None = None
    accuracy: Accuracy | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    alone: float | None = None
    beside: float | None = None

    @property
    def slowdown(self) -> float | None:
        """How many times as long a run takes beside a neighbour."""
        return self.beside / self.alone if self.beside is not None and self.alone else None

    @property
    def agrees(self) -> bool:
        """Whether its answer is that of the reference; a fast wrong answer counts for nothing."""
        return self.accuracy is None or self.accuracy.agrees


@dataclass(frozen=True)
class ModelResult:
    """All engines on one model, in the order of the settings.

    Attributes:
        reference: the engine that the others are compared with.
        inexact: why that is not the model in double precision, where this was asked for.
    """

    model: str
    shapes: Mapping[str, Shape]
    engines: Mapping[str, EngineResult]
    reference: str = ""
    inexact: str = ""

    def seconds(self, engine: str) -> float | None:
        """Median latency; None when the engine failed, answered otherwise than the reference, or was not asked."""
        result = self.engines.get(engine)
        return result.timing.median if result is not None and result.timing is not None and result.agrees else None

    def ratio(self, peer: str) -> float | None:
        """The peer's latency over ours."""
        theirs, ours = self.seconds(peer), self.seconds(OURS)
        return theirs / ours if theirs is not None and ours is not None else None

    @property
    def best_ratio(self) -> float | None:
        """The latency of the fastest peer over ours."""
        return min((r for p in PEERS if (r := self.ratio(p)) is not None), default=None)


def measure_model(path: Path, settings: Settings, say: Say) -> ModelResult:
    """Load, run once and compare, then time in rounds. An engine that fails is left out from there on."""
    specs = read_inputs(path)
    shapes = choose_shapes(path.stem, specs, settings.shapes)
    unfit = [
        n for n, s in shapes.items() if settings.shapes.get(n, s) != s and f"{path.stem}:{n}" not in settings.shapes
    ]
    for name in unfit:
        say(f"{path.stem}: its input {name} is not of shape {settings.shapes[name]}, {shapes[name]} is used")
    feeds = make_inputs(specs, shapes, settings.values)
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="ingot-bench-") as folder:
        processes = {name: stack.enter_context(EngineProcess(name)) for name in settings.engines}
        results: dict[str, EngineResult] = {}
        outputs: dict[str, dict[str, Array]] = {}
        inexact = ""
        if settings.exact:
            say(f"{path.stem}: {REFERENCE} runs")
            try:
                outputs[REFERENCE] = _run_reference(path, shapes, feeds, Path(folder))
            except EngineFailed as error:
                inexact = str(error)
        for name, process in processes.items():
            say(f"{path.stem}: {name} loads")
            try:
                facts = process.command(
                    "load", model=str(path), shapes=shapes, dynamic=settings.dynamic, threads=settings.threads
                )
                outputs[name] = _run_once(process, feeds, Path(folder))
                results[name] = EngineResult(name, facts=facts)
            except EngineFailed as error:
                results[name] = EngineResult(name, error=str(error))
        say(f"{path.stem}: {settings.rounds} rounds")
        neighbour = stack.enter_context(Neighbour()) if settings.neighbour else None
        timings = _time_rounds({n: processes[n] for n in results if n in outputs}, settings, neighbour)
    reference = next((n for n in _REFERENCES if n in outputs), "")
    return ModelResult(
        path.stem,
        shapes,
        {n: _completed(r, timings.get(n), outputs, reference, settings.tolerance) for n, r in results.items()},
        reference,
        inexact,
    )


def _run_reference(
    path: Path, shapes: Mapping[str, Shape], feeds: Mapping[str, Array], folder: Path
) -> dict[str, Array]:
    with EngineProcess(REFERENCE) as process:
        process.command("load", model=str(path), shapes=dict(shapes), dynamic=False, threads=1)
        return _run_once(process, feeds, folder, _REFERENCE_SECONDS)


def _run_once(
    process: EngineProcess, feeds: Mapping[str, Array], folder: Path, timeout: float = COMMAND_SECONDS
) -> dict[str, Array]:
    inputs, outputs = folder / "inputs.npz", folder / f"{process.engine}.npz"
    if not inputs.exists():
        write_arrays(inputs, feeds)
    process.command("run", timeout, inputs=str(inputs), outputs=str(outputs))
    return read_arrays(outputs)


@dataclass(frozen=True)
class _Timed:
    """Turns of one engine, alone and beside a neighbour, and why it failed meanwhile."""

    alone: list[Slice] = field(default_factory=list)
    beside: list[Slice] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def _time_rounds(
    processes: Mapping[str, EngineProcess], settings: Settings, neighbour: Neighbour | None
) -> dict[str, _Timed]:
    timed = {name: _Timed() for name in processes}

    def turn(name: str) -> Slice:
        answer = processes[name].command("time", seconds=settings.slice_seconds, least=settings.least)
        return Slice(tuple(answer["times"]), answer["preempted"])

    for _ in range(settings.rounds):
        for name in [n for n in processes if not timed[n].errors]:
            try:
                timed[name].alone.append(turn(name))
                if neighbour is not None:
                    with neighbour.beside():
                        timed[name].beside.append(turn(name))
            except EngineFailed as error:
                timed[name].errors.append(str(error))
    return timed


def _completed(
    result: EngineResult,
    timed: _Timed | None,
    outputs: Mapping[str, Mapping[str, Array]],
    reference: str,
    tolerance: float,
) -> EngineResult:
    if timed is None or timed.errors:
        return EngineResult(
            result.engine, error=result.error or "".join(timed.errors if timed else ()), facts=result.facts
        )
    own = result.engine == reference
    return replace(
        result,
        timing=summarize(timed.alone),
        accuracy=None if own else compare(outputs[result.engine], outputs[reference], tolerance),
        alone=typical(timed.alone) if timed.beside else None,
        beside=typical(timed.beside) if timed.beside else None,
    )
