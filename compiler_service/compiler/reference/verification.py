"""Verification of an artifact: its answers on seeded inputs against an independent oracle, output by output.

The oracle is ONNX Runtime when it is installed, else the reference interpreter of the graph IR. Where ONNX Runtime answers otherwise, or
not at all, the reference of the ``onnx`` package decides: of three that are independent, the two that agree are right. The artifact
runs in a process of its own, through the runtime service's loader: what is verified is what will be served. One for another machine
runs under qemu's user mode, where that is installed.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler_service.compiler.codegen.toolchain.emulation import Emulator, emulated_name, find_emulator
from compiler_service.compiler.codegen.toolchain.host import runs_here
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.reference.comparison import Arrays, OutputReport, compare
from compiler_service.compiler.reference.emulated import EmulatedArtifact, NotRunError, cannot_be_emulated
from compiler_service.compiler.reference.precision import TOLERANCE, tolerance_of
from shared_ir.arrays import storage_dtype
from shared_ir.artifact.exchange import write_artifact
from shared_ir.artifact.value import CompiledArtifact, Manifest
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dim_symbols, evaluate
from shared_ir.foreign_json import foreign_json
from shared_ir.machine.target import architecture_of, derive
from shared_ir.plan.program import Call, Plan, TensorSpec, walk_steps
from shared_ir.types import ValueKind

Oracle = Callable[[Arrays], Arrays]
Answer = tuple[list[np.ndarray], float]
"""Outputs and the median seconds of a run; 0 where they were not measured."""
Run = Callable[[Arrays], Answer | None]
"""None when the model does not take inputs of these sizes."""

_ONNX_RUNTIME = "onnxruntime"
_EXTENTS_TO_TRY = (64, 96, 48, 224, 32, 16, 7, 3, 1)
"""Extents to try for symbols that are not the batch."""
_EXTENTS_TO_EMULATE = (32, 64, 16, 48, 96, 7, 3, 1, 224)
"""The same, smaller ones first: an emulator takes a hundred times as long."""
_EXTENT_OF_BATCH = 2
_SEED = 20240229
_RUNS_OF_ORACLE = 5
PATIENCE_SECONDS = 120.0
"""For the runs of an artifact, where a verification is welcome but not required."""
_TIMEOUT_SECONDS = 600.0
"""The same where it is required."""


@dataclass(frozen=True)
class Means:
    """What artifacts are run with.

    Attributes:
        runner: the command that runs one of this machine once: it takes ``ARTIFACT INPUTS.npz OUTPUTS.npz --repeat N`` and prints
            what became of it, a line of JSON.
        patience: seconds that runs of an artifact may take; None for as many as an emulator needs, and for ten minutes here.
    """

    runner: Sequence[str]
    patience: float | None = None


def verify(
    artifact: CompiledArtifact,
    source: ModelSource,
    interpret: Callable[[], Oracle],
    means: Means,
    written: Path | None = None,
) -> dict[str, Any]:
    """The report of a verification, as JSON values.

    Args:
        interpret: makes the reference interpreter, for machines without ONNX Runtime.
        written: where the artifact lies already.

    Raises:
        IngotError: NUMERIC_MISMATCH naming the output, its error and the tolerance.
    """
    try:
        return _verify(artifact, source, interpret, means, written)
    except NotRunError as error:
        return {"state": "not run", "reason": str(error)}


def _verify(
    artifact: CompiledArtifact, source: ModelSource, interpret: Callable[[], Oracle], means: Means, written: Path | None
) -> dict[str, Any]:
    plan, emulator = artifact.plan, _emulator_for(artifact.manifest)
    _require_comparable(artifact, emulator)
    name, oracle = _oracle(source, interpret)
    if not name.startswith(_ONNX_RUNTIME) and _looks_behind_numbers(plan):
        raise NotRunError("the reference interpreter has no strings, sequences and optionals")
    with tempfile.TemporaryDirectory(prefix="ingot-verify-") as folder:
        directory = Path(folder)
        if written is None:
            written = directory / "artifact"
            write_artifact(written, artifact)
        run = _way_to_run(directory, written, artifact, emulator, means)
        for sizes in _candidate_sizes(plan, _EXTENTS_TO_TRY if emulator is None else _EXTENTS_TO_EMULATE):
            required = [s for s in plan.inputs if not s.is_optional]
            inputs = make_inputs(required, sizes, plan.strings)
            answer = run(inputs)
            if answer is None:
                continue
            outputs, seconds = answer
            start = time.perf_counter()
            name, tolerance, reports = _judged(plan, outputs, inputs, name, oracle, source)
            first = time.perf_counter() - start
            measured = _median(oracle, inputs) if seconds and name.startswith(_ONNX_RUNTIME) else 0.0
            return {
                "state": "verified",
                "oracle": name,
                "sizes": dict(sizes),
                "tolerance": tolerance,
                "outputs": [vars(r) for r in reports],
                "seconds": seconds,
                "oracle_seconds": measured or first,
                "ratio": measured / seconds if seconds else 0.0,
                "emulator": emulator.version if emulator else "",
            }
    raise NotRunError("no sizes of the symbolic dims were accepted")


def _judged(
    plan: Plan, outputs: Arrays, inputs: Arrays, name: str, oracle: Oracle, source: ModelSource
) -> tuple[str, float, tuple[OutputReport, ...]]:
    """Who agrees with ``outputs``, within which tolerance, and how far. Raises IngotError NUMERIC_MISMATCH: nobody does."""
    try:
        return name, *_compared(plan, outputs, oracle(inputs), source)
    except Exception as error:  # NOTE: ONNX Runtime has errors of its own
        if not name.startswith(_ONNX_RUNTIME):
            raise
        failure = error
    try:
        second, reference = _reference(source)
        tolerance, reports = _compared(plan, outputs, reference(inputs), source)
    except Exception:  # it says otherwise too, or nothing
        if isinstance(failure, IngotError):
            raise failure from None
        raise NotRunError(f"{name} does not run the model: {str(failure)[:200]}") from failure
    told = "answers otherwise" if isinstance(failure, IngotError) else "does not run it"
    return f"{second} ({name} {told})", tolerance, reports


def _compared(
    plan: Plan, outputs: Arrays, expected: Arrays, source: ModelSource
) -> tuple[float, tuple[OutputReport, ...]]:
    """As :func:`compare`, within the tolerance that the narrowest type of the model allows, where one is needed."""
    try:
        return TOLERANCE, compare(plan.outputs, outputs, expected)
    except IngotError:
        tolerance = tolerance_of(source)
        if tolerance <= TOLERANCE:
            raise
        return tolerance, compare(plan.outputs, outputs, expected, tolerance)


def _reference(source: ModelSource) -> tuple[str, Oracle]:
    """That of the ``onnx`` package. Raises whatever it makes of a model that it cannot run."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(
        onnx.load_from_string(source.model) if isinstance(source.model, bytes) else str(source.model)
    )
    names = evaluator.input_names
    return f"onnx.reference {onnx.__version__}", lambda arrays: list(
        evaluator.run(None, dict(zip(names, arrays, strict=True)))
    )


def _require_comparable(artifact: CompiledArtifact, emulator: Emulator | None) -> None:
    """Raises NotRunError for what has no answers that are the same each time, or cannot be given seeded values."""
    if artifact.report.get("random"):
        raise NotRunError("the model draws random numbers: no other generator draws the same")
    odd = next((s.name for s in artifact.plan.inputs if s.kind is not ValueKind.TENSOR), "")
    if odd:
        raise NotRunError(f"{odd} is a sequence or optional, for which there are no seeded values")
    if all(s.kind is not ValueKind.TENSOR for s in artifact.plan.outputs):
        raise NotRunError("no output is a tensor")
    if emulator is not None and cannot_be_emulated(artifact.plan):
        raise NotRunError("strings, sequences and optionals need the runtime service, which is not emulated")


def _emulator_for(manifest: Manifest) -> Emulator | None:
    """None where this machine itself runs the code.

    Raises:
        NotRunError: nothing here does.
    """
    if runs_here(manifest.triple, manifest.features):
        return None
    architecture = architecture_of(manifest.triple)
    found = find_emulator(architecture)
    if found is None:
        raise NotRunError(
            f"this machine cannot run code for {manifest.triple}, and has no {emulated_name(architecture)}"
        )
    return found


def _way_to_run(
    directory: Path, written: Path, artifact: CompiledArtifact, emulator: Emulator | None, means: Means
) -> Run:
    """NOTE: how long an emulator takes says nothing of the machine that it emulates, and is not reported."""
    if emulator is None:
        return lambda inputs: _run(directory, written, inputs, means)
    target = derive("llvm", artifact.manifest.triple, artifact.manifest.cpu, artifact.manifest.features)
    emulated = EmulatedArtifact(artifact.plan, target, emulator, written.absolute(), directory, means.patience)

    def run(inputs: Arrays) -> Answer | None:
        outputs = emulated.run(inputs)
        return None if outputs is None else (outputs, 0.0)

    return run


def _looks_behind_numbers(plan: Plan) -> bool:
    """Whether the model has strings at its interface, or calls."""
    strings = any(s.dtype is DType.STRING for s in (*plan.inputs, *plan.outputs))
    return strings or any(isinstance(step, Call) for step in walk_steps(plan.steps))


def require_verified(report: dict[str, Any]) -> dict[str, Any]:
    """``report`` of what was verified.

    Raises:
        IngotError: NOT_VERIFIED with the reason why it was not.
    """
    if report["state"] == "verified":
        return report
    raise IngotError(
        ErrorCode.NOT_VERIFIED,
        f"the job requires a verification, which was not run: {report['reason']}",
        field="verification",
        expected="a worker that can run the code, or has qemu-user for its architecture",
        remedy="Compile with verification=available to publish it as not verified, or ask the operator to install qemu-user.",
    )


def _oracle(source: ModelSource, interpret: Callable[[], Oracle]) -> tuple[str, Oracle]:
    if importlib.util.find_spec("onnxruntime") is None or source.blobs:
        return "reference interpreter", interpret()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    model = str(source.model) if isinstance(source.model, Path) else source.model
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # whatever it refuses (a newer opset, an operator) is no fault of the model
        return "reference interpreter", interpret()
    names = [i.name for i in session.get_inputs()]
    return f"{_ONNX_RUNTIME} {onnxruntime.__version__}", lambda arrays: session.run(
        None, {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in zip(names, arrays, strict=True)}
    )


def _median(oracle: Oracle, inputs: Arrays) -> float:
    times = []
    for _ in range(_RUNS_OF_ORACLE):
        start = time.perf_counter()
        oracle(inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _candidate_sizes(plan: Plan, extents: Sequence[int]) -> Iterator[Mapping[str, int]]:
    """Values for the symbols: two rows of the batch, one guess for all others."""
    symbols = [s.name for s in plan.symbols]
    first = {s.name for s in plan.symbols if s.axis == 0}
    for size in extents if set(symbols) - first else extents[:1]:
        yield {s: _EXTENT_OF_BATCH if s in first else size for s in symbols}


def make_inputs(specs: Sequence[TensorSpec], sizes: Mapping[str, int], words: Sequence[str] = ()) -> list[np.ndarray]:
    """Seeded inputs: standard normal floats, integers in {0, 1}, strings out of ``words`` and one more. Symbols that ``sizes``
    lacks count as 1."""
    rng = np.random.default_rng(_SEED)
    inputs = []
    for spec in specs:
        values = {s: sizes.get(s, 1) for s in dim_symbols(spec.shape)}
        shape = tuple(evaluate(d, values) for d in spec.shape)
        if spec.dtype is DType.STRING:
            inputs.append(rng.choice(np.array([*words, "another"]), shape))
            continue
        dtype = storage_dtype(spec.dtype)
        if spec.dtype.is_float:
            inputs.append(rng.standard_normal(shape).astype(dtype))
        else:
            inputs.append(rng.integers(0, 2, shape).astype(dtype))
    return inputs


def _run(directory: Path, artifact: Path, inputs: Arrays, means: Means) -> Answer | None:
    """Raises NotRunError: it took too long, as a model may whose loop ends after 2^62 turns; nobody waits for what follows it."""
    given, result = directory / "inputs.npz", directory / "outputs.npz"
    np.savez(given, allow_pickle=False, **{str(i): a for i, a in enumerate(inputs)})
    command = [*means.runner, str(artifact), str(given), str(result), "--repeat", str(_RUNS_OF_ORACLE)]
    patience = means.patience or _TIMEOUT_SECONDS
    try:
        child = subprocess.run(command, capture_output=True, timeout=patience, check=False, text=True)
    except subprocess.TimeoutExpired:
        raise NotRunError(f"the compiled model had not answered after {patience:g} s") from None
    answer = _answer(child.stdout)
    if answer is None:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"the compiled model brought down the process that ran it (exit status {child.returncode})",
            received=child.stderr[-400:],
        )
    if "error" in answer:
        error = IngotError.from_dict(answer["error"])
        if error.code is ErrorCode.INVALID_ARGUMENT:
            return None
        raise error
    with np.load(result, allow_pickle=False) as arrays:
        return [arrays[name] for name in sorted(arrays.files, key=int)], float(answer["seconds"])


def _answer(text: str) -> dict[str, Any] | None:
    lines = text.strip().splitlines()
    try:
        found = foreign_json(lines[-1]) if lines else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
