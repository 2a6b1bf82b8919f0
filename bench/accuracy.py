"""How far the outputs of two engines lie apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.inputs import Array

TOLERANCE = 1e-4
"""Largest difference, relative to the reference's largest element, that still counts as the same answer in float32."""


@dataclass(frozen=True)
class Accuracy:
    """Difference from the reference over all outputs.

    Attributes:
        max_abs: largest absolute difference.
        max_rel: largest over the outputs of that difference relative to the output's largest element; infinite when
            outputs are missing, differ in shape, or are finite in different places.
        output: the output with the largest relative difference.
        tolerance: the largest ``max_rel`` that still counts as the same answer.
    """

    max_abs: float
    max_rel: float
    output: str = ""
    tolerance: float = TOLERANCE

    @property
    def agrees(self) -> bool:
        return self.max_rel <= self.tolerance


def compare(outputs: Mapping[str, Array], reference: Mapping[str, Array], tolerance: float = TOLERANCE) -> Accuracy:
    """The difference of ``outputs`` from ``reference``, by name of output."""
    worst = Accuracy(0.0, 0.0, tolerance=tolerance)
    for name, expected in reference.items():
        max_abs, max_rel = _difference(outputs.get(name), expected)
        larger = max_rel > worst.max_rel
        output = name if larger else worst.output
        worst = Accuracy(max(worst.max_abs, max_abs), max(worst.max_rel, max_rel), output, tolerance)
    return worst


def _difference(output: Array | None, expected: Array) -> tuple[float, float]:
    """(absolute, relative to the largest element)"""
    if output is None or output.shape != expected.shape:
        return math.inf, math.inf
    if not expected.size:
        return 0.0, 0.0
    a, b = output.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf, math.inf
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    scale = float(np.abs(b[finite]).max(initial=0.0))
    return difference, difference / scale if scale else difference
