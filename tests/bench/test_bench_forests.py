"""Ensembles that are written for benchmarks: what they compute, and that it is the same everywhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from bench.forests import SHAPES, Shape, forest_model
from tests.conformance.compiled import check_against_onnx_runtime


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 5])
@pytest.mark.parametrize("rows", [1, "n"])
def test_every_kind_computes_what_onnx_runtime_does(rows: int | str, classes: int) -> None:
    shape = Shape(trees=9, levels=5, features=4, classes=classes)
    model = forest_model("small", shape, rows)
    onnx.checker.check_model(model)
    x = np.random.default_rng(1).standard_normal((1 if rows == 1 else 7, 4), np.float32)
    check_against_onnx_runtime(model, {"x": x})


@pytest.mark.slow
def test_trees_are_as_deep_as_they_say() -> None:
    model = forest_model("bagged", SHAPES["bagged"], 1)
    attributes = {a.name: a for a in model.graph.node[0].attribute}
    inner = sum(mode == b"BRANCH_LEQ" for mode in attributes["nodes_modes"].strings)
    assert inner > SHAPES["bagged"].trees * 2 ** (SHAPES["bagged"].levels - 2)
