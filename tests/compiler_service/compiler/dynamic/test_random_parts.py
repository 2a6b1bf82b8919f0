"""Random networks of concatenations: optimised equals unoptimised, both executors and any number of threads are the same bits."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.artifact.value import CompiledArtifact
from tests.compiler_service.compiler.dynamic.compiled import compiled, normal
from tests.compiler_service.compiler.dynamic.test_compiled_parts import Net

Shape = tuple[int | str, int, int, int]
"""Of an image; only the batch may be unknown."""


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Convolutions, pools and activations that are concatenated along any axis, again and again, and read elsewhere too."""
    net = Net()
    batches: list[int | str] = [1, 2, "n"]
    batch = draw(st.sampled_from(batches))
    values: dict[str, Shape] = {"x": (batch, 16, 5, 6)}
    for _ in range(draw(st.integers(4, 10))):
        name = draw(st.sampled_from(list(values)))
        shape = values[name]
        kind = draw(st.sampled_from(["conv", "conv", "pool", "act", "concat", "concat", "concat"]))
        if kind == "conv":
            out, kernel = draw(st.sampled_from([16, 24, 32])), draw(st.sampled_from([1, 3]))
            values[net.conv(name, shape[1], out, kernel)] = (shape[0], out, *shape[2:])
        elif kind == "pool":
            values[net.add("MaxPool", name, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])] = shape
        elif kind == "act":
            values[net.add("Sigmoid", name)] = shape
        else:
            axis = draw(st.sampled_from([1, 1, 1, 2, 3]))
            others = [n for n, s in values.items() if _without(s, axis) == _without(shape, axis)]
            chosen = [name, *draw(st.lists(st.sampled_from(others), min_size=1, max_size=3))]
            extents: list[Any] = list(shape)
            extents[axis] = sum(int(values[n][axis]) for n in chosen)
            values[net.concat(*chosen, axis=axis)] = tuple(extents)
    read = {i for n in net.nodes for i in n.input}
    made = [n.output[0] for n in net.nodes if n.output[0] in values]
    outputs = [n for n in made if n not in read or draw(st.sampled_from([True, False, False, False]))]
    return net.model(values["x"], *((n, values[n]) for n in outputs))


def _without(shape: Shape, axis: int) -> tuple[object, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("draws", [14, pytest.param(40, marks=pytest.mark.long)])
def test_levels_executors_and_threads_agree(draws: int) -> None:
    settings(SETTINGS, max_examples=draws)(given(networks())(agree))()


def agree(proto: onnx.ModelProto) -> None:
    optimised, plain = compiled(proto), compiled(proto, opt_level=0)
    batch = optimised.plan.inputs[0].shape[0]
    for rows in (batch,) if isinstance(batch, int) else (1, 3):
        feeds = {"x": normal(rows, 16, 5, 6, seed=rows)}
        found = []
        ways: list[tuple[CompiledArtifact, ExecutorKind, int]] = [
            (optimised, "aot", 1),
            (optimised, "aot", 3),
            (optimised, "graph", 2),
            (plain, "aot", 1),
        ]
        for artifact, executor, threads in ways:
            with load_model(artifact, threads=threads, executor=executor) as loaded:
                found.append(loaded.run(feeds))
        first, *same, expected = found
        for name, array in first.items():
            for other in same:
                np.testing.assert_array_equal(array, other[name])
            np.testing.assert_allclose(array, expected[name], rtol=2e-5, atol=2e-5)
