"""How near two answers are: the vote of reference, ONNX Runtime and compiled code."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

Array = np.ndarray

TOLERANCES = {"float32": 1e-4, "float64": 1e-9, "float16": 1e-2, "bfloat16": 6e-2}
"""Relative to the largest element of an output or, pointwise, to the element; what has no rounding is equal."""


def agree(left: Sequence[Array], right: Sequence[Array], pointwise: bool = False, loosest: float = 0.0) -> bool:
    """Equal shapes and types; NaN and infinities at the same places; all else within the tolerance of its type.

    ``loosest``: a tolerance that stands for smaller ones, where a narrower type was computed with on the way.
    """
    return len(left) == len(right) and all(close(a, b, pointwise, loosest) for a, b in zip(left, right, strict=True))


def close(a: Array, b: Array, pointwise: bool = False, loosest: float = 0.0) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f" and a.dtype != ml_dtypes.bfloat16:
        return bool(np.array_equal(a, b))
    tolerance = max(TOLERANCES[a.dtype.name], loosest)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    x, y = a[finite].astype(np.float64), b[finite].astype(np.float64)
    scale = np.maximum(np.abs(y), tolerance) if pointwise else max(1.0, float(np.abs(y).max(initial=0)))
    return bool(np.all(np.abs(x - y) <= tolerance * scale))


def each_agrees(
    own: Sequence[Array], others: Sequence[Sequence[Array]], pointwise: bool = False, loosest: float = 0.0
) -> bool:
    """Whether each element agrees with one of the answers, where these part: one is right here, the other there."""
    if any([(a.shape, a.dtype) for a in own] != [(a.shape, a.dtype) for a in answer] for answer in others):
        return False
    columns = zip(own, zip(*others, strict=True), strict=True)
    return all(
        bool(np.logical_and.reduce([_apart(a, b, pointwise, loosest) for b in answers]).sum() == 0)
        for a, answers in columns
    )


def difference(own: Sequence[Array], other: Sequence[Array], pointwise: bool = False, loosest: float = 0.0) -> str:
    """Where the outputs part: type, shape and a few elements of both."""
    if len(own) != len(other):
        return f"{len(own)} outputs for {len(other)}"
    for index, (a, b) in enumerate(zip(own, other, strict=True)):
        if close(a, b, pointwise, loosest):
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {index}: {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        apart = _apart(a, b, pointwise, loosest)
        places = np.flatnonzero(apart)[:4]
        pairs = ", ".join(f"[{p}] {a.reshape(-1)[p]} for {b.reshape(-1)[p]}" for p in places)
        return f"output {index} {a.dtype}{list(a.shape)}, {int(apart.sum())} elements: {pairs}"
    return "equal"


def _apart(a: Array, b: Array, pointwise: bool, loosest: float) -> Array:
    """Of each element, whether it differs."""
    scale = 1.0 if pointwise or a.dtype.kind not in "f" else max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
    flat = [
        not close(np.array([x / scale]).astype(a.dtype), np.array([y / scale]).astype(a.dtype), pointwise, loosest)
        if a.dtype.kind == "f"
        else x != y
        for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)
    ]
    return np.array(flat, np.bool_)
