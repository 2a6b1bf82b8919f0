"""Whether two answers of a model are the same, but for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler_service.compiler.reference.precision import TOLERANCE
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import TensorSpec
from shared_ir.types import ValueKind

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class OutputReport:
    """Errors of one output: largest absolute difference, and the same relative to the largest element."""

    name: str
    max_abs_error: float
    max_rel_error: float


def compare(
    specs: Sequence[TensorSpec], outputs: Arrays, expected: Arrays, tolerance: float = TOLERANCE
) -> tuple[OutputReport, ...]:
    """``outputs`` are those of ``specs`` that are tensors, ``expected`` all of them.

    Raises NUMERIC_MISMATCH for the first output that is off by more than ``tolerance``, relative to its largest element.
    """
    tensors = [(s, e) for s, e in zip(specs, expected, strict=True) if s.kind is ValueKind.TENSOR]
    return tuple(_compare(s, o, e, tolerance) for (s, e), o in zip(tensors, outputs, strict=True))


def _compare(spec: TensorSpec, output: np.ndarray, expected: np.ndarray, tolerance: float) -> OutputReport:
    expected = np.asarray(expected)
    if spec.dtype is DType.STRING:
        return _compare_strings(spec, output, expected)
    if output.shape != expected.shape or output.dtype != expected.dtype:
        raise _mismatch(spec, f"{expected.dtype}{expected.shape}", f"{output.dtype}{output.shape}")
    if output.size == 0:
        return OutputReport(spec.name, 0.0, 0.0)
    wide = np.float64 if spec.dtype.is_float else np.int64
    a, b = output.astype(wide), expected.astype(wide)
    differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not differs.any():
        return OutputReport(spec.name, 0.0, 0.0)
    if not (np.isfinite(a[differs]).all() and np.isfinite(b[differs]).all()):
        raise _mismatch(spec, "the same elements to be finite", "infinities or NaN in other places")
    error = float(np.abs(a - b)[differs].max())
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    relative = error / scale if scale else error
    if relative > tolerance:
        raise _mismatch(spec, f"at most {tolerance:g} of the largest element", f"{relative:.3g}")
    return OutputReport(spec.name, error, relative)


def _compare_strings(spec: TensorSpec, output: np.ndarray, expected: np.ndarray) -> OutputReport:
    if output.shape != expected.shape:
        raise _mismatch(spec, f"strings of shape {expected.shape}", f"shape {output.shape}")
    differs = int(np.sum(output.astype(str) != expected.astype(str)))
    if differs:
        raise _mismatch(spec, "the same strings", f"{differs} of {output.size} differ")
    return OutputReport(spec.name, 0.0, 0.0)


def _mismatch(spec: TensorSpec, expected: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.NUMERIC_MISMATCH,
        f"output {spec.name!r} of the compiled model differs from the model's own answer",
        tensor=spec.name,
        expected=expected,
        received=received,
        remedy="This is a bug in the compiler: compile with opt_level 0 to go on, and report the model.",
    )
