"""Interleaved rounds: every engine on the same model and inputs, one after the other, again and again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.accuracy import TOLERANCE, Accuracy, compare
from bench.arrays import read_arrays, write_arrays
from bench.inputs import Array, Shape, choose_shapes, make_inputs, read_inputs
from bench.process import COMMAND_SECONDS, EngineFailed, EngineProcess
from bench.timing import Slice, Timing, summarize

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


@dataclass(frozen=True)
class EngineResult:
    """One engine on one model: either ``error`` or the rest.

    Attributes:
        facts: versions, seconds to load or compile, bytes; see the engine.
        accuracy: against the reference; None for the reference itself.
    """

    engine: str
    error: str = ""
    timing: Timing | None = None
    accuracy: Accuracy | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

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
        timings = _time_rounds({n: processes[n] for n in results if n in outputs}, settings)
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


def _time_rounds(processes: Mapping[str, EngineProcess], settings: Settings) -> dict[str, Timing | str]:
    """The timing of every engine, or why it failed while it was timed."""
    slices: dict[str, list[Slice]] = {name: [] for name in processes}
    failed: dict[str, Timing | str] = {}
    for _ in range(settings.rounds):
        for name in [n for n in processes if n not in failed]:
            try:
                answer = processes[name].command("time", seconds=settings.slice_seconds, least=settings.least)
                slices[name].append(Slice(tuple(answer["times"]), answer["preempted"]))
            except EngineFailed as error:
                failed[name] = str(error)
    return {name: summarize(found) for name, found in slices.items() if name not in failed} | failed


def _completed(
    result: EngineResult,
    timing: Timing | str | None,
    outputs: Mapping[str, Mapping[str, Array]],
    reference: str,
    tolerance: float,
) -> EngineResult:
    if timing is None or isinstance(timing, str):
        return EngineResult(result.engine, error=result.error or str(timing), facts=result.facts)
    own = result.engine == reference
    accuracy = None if own else compare(outputs[result.engine], outputs[reference], tolerance)
    return EngineResult(result.engine, timing=timing, accuracy=accuracy, facts=result.facts)
