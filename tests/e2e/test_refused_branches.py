"""A branch of ``If`` that cannot run for the shapes at hand: the model compiles, and only a run that takes it is refused."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

import ingot
from compiler_service.compiler.reference.interpret import run_graph
from ingot import IngotError
from runtime_service.loading.loader import ExecutorKind
from shared_ir.errors import ErrorCode
from tests.cases import every
from tests.compiler_service.compiler.frontend.onnx_models import (
    BOOL,
    FLOAT,
    INT64,
    constant,
    graph,
    load,
    model,
    node,
    tensor,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def arm(op: str, *operands: str) -> onnx.GraphProto:
    return graph([node(op, ["x", *operands], ["r"], name=f"inner_{op}")], [], ["r"], [])


def weights() -> list[onnx.TensorProto]:
    return [constant("w", np.ones((4, 4)).tolist(), "float32")]


def choice(then: onnx.GraphProto, otherwise: onnx.GraphProto) -> onnx.ModelProto:
    nodes = [node("If", ["flag"], ["y"], name="choose", then_branch=then, else_branch=otherwise)]
    return model(nodes, [tensor("flag", [], BOOL), tensor("x", ["n", "k"])], ["y"], weights())


def run(
    proto: onnx.ModelProto, executor: ExecutorKind = "aot", **feeds: np.ndarray | bool | int | list[bool]
) -> list[np.ndarray]:
    artifact = ingot.compile(proto.SerializeToString(), shapes={"x": [2, 3]})
    with ingot.load(artifact, executor=executor) as loaded:
        return list(loaded.run({"x": X} | {k: np.asarray(v) for k, v in feeds.items()}).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("swapped", "executor"),
    every(itertools.product((False, True), ("aot", "graph")), quick={(False, "graph"), (True, "aot")}),
)
def test_only_the_run_that_takes_it_is_refused(swapped: bool, executor: ExecutorKind) -> None:
    arms = (arm("MatMul", "w"), arm("Relu"))  # w has 4 rows, x 3 columns
    proto = choice(*(reversed(arms) if swapped else arms))
    artifact = ingot.compile(proto.SerializeToString(), shapes={"x": [2, 3]})
    with ingot.load(artifact, executor=executor) as loaded:
        (y,) = loaded.run({"flag": np.array(swapped), "x": X}).values()
        np.testing.assert_array_equal(y, np.maximum(X, 0))
        with pytest.raises(IngotError) as caught:
            loaded.run({"flag": np.array(not swapped), "x": X})
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        for told in ("node 'choose'", "else_branch" if swapped else "then_branch", "inner_MatMul (MatMul)"):
            assert told in str(caught.value)
        loaded.run({"flag": np.array(swapped), "x": X})


def test_the_reference_interpreter_refuses_it_too() -> None:
    module = load(choice(arm("MatMul", "w"), arm("Relu")), shapes={"x": [2, 3]})
    (y,) = run_graph(module.graph, {"flag": np.array(False), "x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    with pytest.raises(IngotError, match="its then_branch cannot run") as caught:
        run_graph(module.graph, {"flag": np.array(True), "x": X})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_a_result_that_nobody_reads_does_not_hide_the_refusal() -> None:
    proto = choice(arm("MatMul", "w"), arm("Relu"))
    proto.graph.node.append(node("Neg", ["x"], ["z"]))
    del proto.graph.output[:]
    proto.graph.output.append(tensor("z", None))
    np.testing.assert_array_equal(run(proto, flag=False)[0], -X)
    with pytest.raises(IngotError, match="its then_branch cannot run"):
        run(proto, flag=True)


@pytest.mark.slow
def test_a_constant_result_does_not_hide_the_refusal() -> None:
    fixed = graph([node("Identity", ["seven"], ["r"])], [], ["r"], [constant("seven", [[7.0]], "float32")])
    proto = choice(arm("MatMul", "w"), fixed)
    assert run(proto, flag=False)[0].tolist() == [[7.0]]
    with pytest.raises(IngotError, match="its then_branch cannot run"):
        run(proto, flag=True)


@pytest.mark.slow
def test_the_innermost_branch_is_the_one_that_is_refused() -> None:
    inner = node("If", ["other"], ["r"], name="inside", then_branch=arm("MatMul", "w"), else_branch=arm("Neg"))
    outer = node("If", ["flag"], ["y"], then_branch=graph([inner], [], ["r"], []), else_branch=arm("Relu"))
    inputs = [tensor("flag", [], BOOL), tensor("other", [1], BOOL), tensor("x", ["n", "k"])]
    proto = model([outer], inputs, ["y"], weights())
    np.testing.assert_array_equal(run(proto, flag=False, other=[True])[0], np.maximum(X, 0))
    np.testing.assert_array_equal(run(proto, flag=True, other=[False])[0], -X)
    with pytest.raises(IngotError, match="node 'inside': its then_branch cannot run"):
        run(proto, flag=True, other=[True])


@pytest.mark.slow
def test_a_branch_with_no_way_through_is_refused_as_a_whole() -> None:
    inner = node("If", ["flag"], ["r"], name="in", then_branch=arm("MatMul", "w"), else_branch=arm("MatMul", "w"))
    outer = node("If", ["flag"], ["y"], name="out", then_branch=graph([inner], [], ["r"], []), else_branch=arm("Relu"))
    proto = model([outer], [tensor("flag", [], BOOL), tensor("x", ["n", "k"])], ["y"], weights())
    np.testing.assert_array_equal(run(proto, flag=False)[0], np.maximum(X, 0))
    with pytest.raises(IngotError, match="node 'out': its then_branch cannot run"):
        run(proto, flag=True)
    with pytest.raises(IngotError, match="MatMul") as caught:
        run(choice(arm("MatMul", "w"), arm("MatMul", "w")), flag=True)
    assert caught.value.code is ErrorCode.TYPE_MISMATCH


@pytest.mark.slow
def test_inside_a_loop_the_iteration_that_takes_it_is_refused() -> None:
    inner = [
        node("Less", ["i", "bound"], ["early"]),
        node("If", ["early"], ["s2"], name="pick", then_branch=arm("Relu"), else_branch=arm("MatMul", "w")),
    ]
    inputs = [tensor("i", [], INT64), tensor("go", [], BOOL), tensor("s", None)]
    body = graph(inner, inputs, ["go", "s2"], [constant("bound", 3)])
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=body)]
    proto = model(nodes, [tensor("trips", [], INT64), tensor("x", ["n", "k"], FLOAT)], ["y"], weights())
    np.testing.assert_array_equal(run(proto, trips=3)[0], np.maximum(X, 0))
    with pytest.raises(IngotError, match="node 'pick': its else_branch cannot run"):
        run(proto, trips=4)


@pytest.mark.slow
def test_what_is_not_supported_is_refused_when_compiling() -> None:
    strange = graph([node("FancyOp", ["x"], ["r"], name="odd")], [], ["r"], [])
    with pytest.raises(IngotError) as caught:
        ingot.compile(choice(arm("Relu"), strange).SerializeToString())
    assert caught.value.code is ErrorCode.UNSUPPORTED_OPERATOR
