"""Batches, rows and graphs that are written for benchmarks: that they are what they say, and computed the same everywhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from bench.batches import batch_model
from bench.positions import elements_model, first_model, message_model
from tests.conformance.compiled import check_against_onnx_runtime

RANDOM = np.random.default_rng(1)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [2, "n"])
def test_images_in_batches(samples: int | str) -> None:
    model = batch_model(samples, size=32)
    onnx.checker.check_model(model)
    check_against_onnx_runtime(model, {"x": RANDOM.standard_normal((2, 3, 32, 32), np.float32)})


@pytest.mark.parametrize(("size", "count"), [(300, 5), (200, 90)])
def test_the_first_of_rows(size: int, count: int) -> None:
    model = first_model(3, size, count)
    onnx.checker.check_model(model)
    check_against_onnx_runtime(model, {"x": RANDOM.standard_normal((3, size), np.float32)})


def test_messages_along_edges() -> None:
    model = message_model(nodes=20, edges=60, features=16)
    onnx.checker.check_model(model)
    check_against_onnx_runtime(model, {"x": RANDOM.standard_normal((20, 16), np.float32)})


def test_elements_at_places_of_their_own() -> None:
    model = elements_model(rows=6, size=40)
    onnx.checker.check_model(model)
    feeds: dict[str, np.ndarray] = {
        "x": RANDOM.standard_normal((6, 40), np.float32),
        "places": RANDOM.integers(-40, 40, (6, 40)),
    }
    check_against_onnx_runtime(model, feeds)
