"""Comparison of outputs."""

from __future__ import annotations

import math

import numpy as np

from bench.accuracy import compare


def test_relative_to_the_largest_element_of_the_output() -> None:
    reference = {"a": np.array([0.0, 4.0]), "b": np.array([100.0])}
    found = compare({"a": np.array([2e-4, 4.0]), "b": np.array([100.001])}, reference)
    assert found.output == "a"
    assert math.isclose(found.max_rel, 5e-5)
    assert math.isclose(found.max_abs, 0.001, rel_tol=1e-6)
    assert found.agrees
    assert not compare({"a": np.array([0.0, 4.001]), "b": reference["b"]}, reference).agrees


def test_what_cannot_be_compared_differs_infinitely() -> None:
    reference = {"a": np.array([1.0, np.nan, np.inf])}
    for output in (
        {},
        {"a": np.array([1.0, np.nan])},
        {"a": np.array([1.0, np.nan, -np.inf])},
        {"a": np.array([1.0, 2.0, np.inf])},
        {"a": np.array([np.nan, np.nan, np.inf])},
    ):
        assert compare(output, reference).max_rel == math.inf
        assert not compare(output, reference).agrees
    assert compare(reference, reference).max_rel == 0.0


def test_integers_and_booleans() -> None:
    assert compare({"a": np.array([True])}, {"a": np.array([False])}).max_abs == 1.0
    assert compare({"a": np.array([], np.int64)}, {"a": np.array([], np.int64)}).max_rel == 0.0
