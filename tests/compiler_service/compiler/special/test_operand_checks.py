"""Divisors that are 0 and positions beyond an axis end the run; where they cannot be there is no check."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import ExecutorKind, load_model
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import Check, walk_steps
from tests.compiler_service.compiler.special.special_cases import Array

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.array([[10, 20], [30, 40], [50, 60]], np.float32)
node = helper.make_node


def integers(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


def compiled(
    nodes: list[onnx.NodeProto], opt_level: int = 3, result: int = FLOAT, **weights: Array
) -> CompiledArtifact:
    """A model of the inputs ``x`` [m, 2], ``i`` and ``j`` [n] and ``k`` [n, 2] that the nodes mention, and the result ``y``."""
    known = {
        "x": (FLOAT, ["m", 2]),
        "i": (INT64, ["n"]),
        "j": (INT64, ["n"]),
        "k": (INT64, ["n", 2]),
        "u": (FLOAT, ["n"]),
    }
    read = {name for n in nodes for name in n.input} - set(weights)
    inputs = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in known.items() if n in read]
    constants = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", result, None)], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return compile_model(
        ModelSource.of(proto.SerializeToString()), host_target(), CompileOptions(opt_level=opt_level), workers=0
    )


def checks(artifact: CompiledArtifact) -> int:
    return sum(isinstance(s, Check) for s in walk_steps(artifact.plan.steps))


def run(artifact: CompiledArtifact, executor: ExecutorKind = "aot", **feeds: Array) -> Array:
    with load_model(artifact, threads=1, executor=executor) as loaded:
        return dict(loaded.run(feeds))["y"]


def refused(artifact: CompiledArtifact, **feeds: Array) -> str:
    executors: list[ExecutorKind] = ["aot", "graph"]
    for executor in executors:
        with pytest.raises(IngotError) as error:
            run(artifact, executor, **feeds)
        assert error.value.code is ErrorCode.INVALID_ARGUMENT
    return str(error.value)


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_division_by_zero(op: str, opt_level: int) -> None:
    artifact = compiled([node(op, ["i", "j"], ["y"], name="quotient")], opt_level, INT64)
    least = -(2**63)
    wanted = [-3, least, 3] if op == "Div" else [-1, 0, 1]
    found = run(artifact, i=integers(-7 if op == "Div" else -1, least, 7), j=integers(2 if op == "Div" else -3, -1, 2))
    assert found.tolist() == wanted
    assert run(artifact, i=integers(), j=integers()).tolist() == []
    message = refused(artifact, i=integers(1, 2, 0), j=integers(0, 1, 0))
    assert f"node 'quotient' ({op})" in message
    assert "received 2" in message


def test_division_of_a_size_by_an_extent_that_is_zero() -> None:
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Div", ["w", "s"], ["q"]),
        node("Expand", ["one", "q"], ["y"]),
    ]
    artifact = compiled(nodes, w=integers(7), one=np.ones(1, np.float32))
    assert run(artifact, x=X).shape == (2,)
    assert "divided by 's': m must be at least 1" in refused(artifact, x=X[:0])


def test_constants_that_divide_by_zero_are_not_folded() -> None:
    artifact = compiled(
        [node("Div", ["a", "b"], ["c"]), node("Add", ["i", "c"], ["y"])], 3, INT64, a=integers(1), b=integers(0)
    )
    assert "divided by 'b'" in refused(artifact, i=integers(1))


@pytest.mark.parametrize("opt_level", [0, 3])
def test_gather(opt_level: int) -> None:
    artifact = compiled([node("Gather", ["x", "i"], ["y"])], opt_level)
    assert run(artifact, x=X, i=integers(0, -3, 2)).tolist() == X[[0, 0, 2]].tolist()
    assert run(artifact, x=X, i=integers()).shape == (0, 2)
    for wrong in (3, -4, 2**62, -(2**63)):
        assert "positions beyond an axis" in refused(artifact, x=X, i=integers(0, wrong))


@pytest.mark.parametrize("opt_level", [0, 3])
def test_scatter_nd(opt_level: int) -> None:
    artifact = compiled([node("ScatterND", ["x", "k", "u"], ["y"])], opt_level)
    u = np.array([1, 2], np.float32)
    assert run(artifact, x=X, k=integers([0, 1], [2, -1]), u=u).tolist() == [[10, 1], [30, 40], [50, 2]]
    assert "of extent m, 2" in refused(artifact, x=X, k=integers([0, 2], [2, 1]), u=u)
    assert "received 1" in refused(artifact, x=X, k=integers([0, 1], [3, 2]), u=u)


def test_gather_nd_and_elements() -> None:
    artifact = compiled([node("GatherND", ["x", "k"], ["y"])])
    assert run(artifact, x=X, k=integers([0, 1], [-1, -2])).tolist() == [20, 50]
    refused(artifact, x=X, k=integers([0, -3]))
    artifact = compiled([node("GatherElements", ["x", "k"], ["y"])])
    assert run(artifact, x=X, k=integers([0, 1], [-1, -2])).tolist() == [[10, 40], [50, 40]]
    refused(artifact, x=X, k=integers([0, 1], [0, 3]))


def test_a_check_inside_a_loop() -> None:
    body = helper.make_graph(
        [node("Gather", ["x", "at"], ["row"]), node("Identity", ["on"], ["go"])],
        "body",
        [helper.make_tensor_value_info(n, t, []) for n, t in (("at", INT64), ("on", TensorProto.BOOL))],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("row", FLOAT, [2])],
    )
    nodes = [
        node("Squeeze", ["i"], ["trips"]),
        node("Loop", ["trips", ""], ["y"], body=body),
        node("Identity", ["x"], ["unused"]),
    ]
    artifact = compiled(nodes)
    assert run(artifact, x=X, i=integers(3)).tolist() == X.tolist()
    assert "positions beyond an axis" in refused(artifact, x=X, i=integers(4))


PROVED: dict[str, tuple[list[onnx.NodeProto], dict[str, Array]]] = {
    "constant positions": ([node("Gather", ["x", "at"], ["y"], axis=1)], {"at": integers(0, -1, 1)}),
    "positions of the largest": (
        [node("ArgMax", ["x"], ["at"], axis=0, keepdims=0), node("Gather", ["x", "at"], ["y"])],
        {},
    ),
    "the first few": ([node("TopK", ["x", "count"], ["y", "at"], axis=1)], {"count": integers(1)}),
    "clipped": (
        [node("Clip", ["i", "low", "high"], ["at"]), node("Gather", ["x", "at"], ["y"], axis=1)],
        {"low": np.array(-2), "high": np.array(1)},
    ),
    "remainders": (
        [node("Mod", ["i", "two"], ["at"]), node("Gather", ["x", "at"], ["y"], axis=1)],
        {"two": np.array(2)},
    ),
    "every position": (
        [
            node("Shape", ["x"], ["s"], start=0, end=1),
            node("Squeeze", ["s"], ["n"]),
            node("Range", ["zero", "n", "one"], ["at"]),
            node("Gather", ["x", "at"], ["y"]),
        ],
        {"zero": np.array(0), "one": np.array(1)},
    ),
    "a constant divisor": (
        [node("Div", ["i", "three"], ["q"]), node("Cast", ["q"], ["y"], to=FLOAT)],
        {"three": integers(3)},
    ),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_is_not_checked(name: str) -> None:
    nodes, weights = PROVED[name]
    assert checks(compiled(nodes, 3, FLOAT, **weights)) == 0
    assert checks(compiled([node("Gather", ["x", "i"], ["y"])])) == 1
