"""Tensors without elements whose other extents are huge: nothing is walked, whatever the operator."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest

from runtime_service.executors.stop import Stop
from runtime_service.loading.loader import load_model
from tests.compiler_service.compiler.dynamic.compiled import (
    INT64,
    Array,
    Feeds,
    compiled,
    constant,
    model,
    node,
    tensor,
)

HUGE = 1 << 30
SECONDS = 20.0
"""After which a run is stopped: walking takes minutes at least."""


def hollow(*shape: int) -> Array:
    return np.empty(shape, np.float32)


CASES: dict[str, tuple[list[onnx.NodeProto], Feeds, tuple[int, ...]]] = {
    "CumSum": ([constant("k", 0), node("CumSum", ["x", "k"], ["y"])], {"x": hollow(HUGE, HUGE, 0)}, (HUGE, HUGE, 0)),
    "LayerNormalization": (
        [node("LayerNormalization", ["x", "s"], ["y"])],
        {"x": hollow(HUGE, HUGE, 0), "s": hollow(0)},
        (HUGE, HUGE, 0),
    ),
    "ReduceSum": ([node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": hollow(HUGE, HUGE, 0)}, ()),
    "Softmax": ([node("Softmax", ["x"], ["y"], axis=1)], {"x": hollow(HUGE, HUGE, 0)}, (HUGE, HUGE, 0)),
    "ArgMax": ([node("ArgMax", ["x"], ["y"], axis=1)], {"x": hollow(HUGE, HUGE, 0)}, (HUGE, 1, 0)),
    "Tile": (
        [node("Tile", ["x", "r"], ["y"])],
        {"x": hollow(3, 3, 0), "r": np.array([3, 1 << 40, 3])},
        (9, 3 << 40, 0),
    ),
    "Expand": (
        [node("Expand", ["x", "r"], ["y"])],
        {"x": hollow(1, 1, 0), "r": np.array([HUGE, HUGE, 1])},
        (HUGE, HUGE, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_walked(name: str) -> None:
    nodes, feeds, shape = CASES[name]
    inputs = [
        tensor(n, [f"{n}{axis}" for axis in range(a.ndim)] if a.dtype == np.float32 else a.shape, *_kind(a))
        for n, a in feeds.items()
    ]
    outputs = [tensor("y", None, INT64 if name == "ArgMax" else 1)]
    with load_model(compiled(model(nodes, inputs, outputs)), threads=1) as loaded:
        stop = Stop()
        timer = threading.Timer(SECONDS, stop.set)
        timer.start()
        assert loaded.run(feeds, stop)["y"].shape == shape
        timer.cancel()


def _kind(array: Array) -> tuple[int, ...]:
    return (INT64,) if array.dtype == np.int64 else ()
