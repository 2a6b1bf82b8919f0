"""If, Loop and Scan: nested graphs, and dims that only the run knows."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import dims_text
from shared_ir.graph.ir import Graph, Module
from shared_ir.graph.text import large_constants, parse_module, print_module
from tests.compiler_service.compiler.frontend.onnx_models import (
    BOOL,
    FLOAT,
    INT64,
    constant,
    graph,
    load,
    model,
    node,
    ops,
    tensor,
)


def body(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: list[onnx.TensorProto] | None = None,
) -> onnx.GraphProto:
    return graph(nodes, inputs, outputs, constants or [])


def output_types(module: Module) -> list[str]:
    text = print_module(module)
    assert print_module(parse_module(text, large_constants(module.graph))) == text
    return [str(v.type) for v in module.graph.outputs]


def branch(op: str, **attributes: object) -> onnx.GraphProto:
    return body([node(op, ["x"], ["r"], **attributes)], [], ["r"])


def test_both_branches_of_an_open_condition_are_kept() -> None:
    nodes = [node("If", ["flag"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))]
    module = load(model(nodes, [tensor("flag", [], BOOL), tensor("x", ["n", 2])], ["y"]))
    (found,) = module.graph.nodes
    assert [ops(g) for g in found.subgraphs] == [["Relu"], ["Neg"]]
    assert output_types(module) == ["float32[n, 2]"]


def test_branches_of_different_size_give_a_symbol() -> None:
    wide = body([node("Concat", ["x", "x"], ["r"], axis=0)], [], ["r"])
    nodes = [node("If", ["flag"], ["y"], then_branch=wide, else_branch=branch("Neg"))]
    module = load(model(nodes, [tensor("flag", [], BOOL), tensor("x", ["n", 2])], ["y"]))
    assert output_types(module) == ["float32[y_0, 2]"]


def test_branches_of_different_rank_need_a_known_condition() -> None:
    squeezed = body([node("Squeeze", ["x", "axis"], ["q"])], [], ["q"])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Equal", ["s", "one"], ["flags"]),
        node("Gather", ["flags", "zero"], ["flag"]),
        node("If", ["flag"], ["y"], name="choose", then_branch=squeezed, else_branch=branch("Identity")),
    ]
    proto = model(
        nodes, [tensor("x", ["n"])], ["y"], [constant("one", [1]), constant("zero", 0), constant("axis", [0])]
    )
    with pytest.raises(IngotError, match="branches of If give different types") as caught:
        load(proto)
    assert caught.value.node == "choose (If)"
    assert "Pin the shapes" in caught.value.remedy
    assert output_types(load(proto, shapes={"x": [1]})) == ["float32[]"]
    assert output_types(load(proto, shapes={"x": [5]})) == ["float32[5]"]


def loop(
    state_op: onnx.NodeProto, scanned: bool = False, condition: str = "go", limit: str = "limit"
) -> list[onnx.NodeProto]:
    inputs = [tensor("i", [], INT64), tensor("go", [], BOOL), tensor("s", None)]
    outputs = [condition, "s2", *(["s2"] if scanned else [])]
    names = ["final", *(["all"] if scanned else [])]
    return [node("Loop", [limit, "", "x"], names, body=body([state_op], inputs, outputs))]


def test_a_counted_loop_scans_its_limit() -> None:
    nodes = loop(node("Relu", ["s"], ["s2"]), scanned=True)
    module = load(model(nodes, [tensor("x", ["n"])], ["final", "all"], [constant("limit", 5)]))
    assert output_types(module) == ["float32[n]", "float32[5, n]"]


def test_a_loop_bounded_by_a_dim_scans_that_dim() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["limit"]),
        *loop(node("Relu", ["s"], ["s2"]), scanned=True),
    ]
    module = load(model(nodes, [tensor("x", ["n"])], ["all"], [constant("zero", 0)]))
    assert output_types(module) == ["float32[n, n]"]


def test_a_loop_that_may_stop_has_a_trip_count_of_its_own() -> None:
    nodes = [node("Greater", ["total", "bound"], ["stop"])]
    inner = [node("ReduceSum", ["s"], ["total"], keepdims=0), node("Less", ["total", "bound"], ["next"])]
    inputs = [tensor("i", [], INT64), tensor("go", [], BOOL), tensor("s", None)]
    nodes = [
        node(
            "Loop",
            ["limit", "", "x"],
            ["final", "all"],
            name="search",
            body=body(
                [*inner, node("Relu", ["s"], ["s2"])], inputs, ["next", "s2", "s2"], [constant("bound", 1, "float32")]
            ),
        )
    ]
    module = load(model(nodes, [tensor("x", ["n"])], ["all"], [constant("limit", 5)]))
    assert output_types(module) == ["float32[search_trips, n]"]


def test_state_that_grows_gets_symbols_inside_and_outside() -> None:
    nodes = loop(node("Concat", ["s", "x"], ["s2"], axis=0))
    module = load(model(nodes, [tensor("x", ["n", 3])], ["final"], [constant("limit", 5)]))
    assert output_types(module) == ["float32[final_0, 3]"]
    inner = module.graph.nodes[0].attributes["body"]
    assert isinstance(inner, Graph)
    assert dims_text(inner.inputs[2].shape) == "s_0, 3"
    assert dims_text(inner.outputs[1].shape) == "s_0 + n, 3" or dims_text(inner.outputs[1].shape) == "n + s_0, 3"


def test_state_that_changes_its_type_is_refused_where_only_the_run_knows_how_often() -> None:
    nodes = loop(node("Cast", ["s"], ["s2"], to=INT64))
    with pytest.raises(IngotError, match="changes the type of a carried value") as caught:
        load(model(nodes, [tensor("x", ["n"]), tensor("limit", [], INT64)], ["final"]))
    assert (caught.value.code, caught.value.tensor) == (ErrorCode.TYPE_MISMATCH, "s")


def test_a_loop_of_known_number_whose_state_changes_its_type_is_unrolled() -> None:
    nodes = loop(node("Unsqueeze", ["s", "first"], ["s2"]))
    constants = [constant("limit", 3), constant("first", [0])]
    module = load(model(nodes, [tensor("x", ["n"])], ["final"], constants))
    assert output_types(module) == ["float32[1, 1, 1, n]"]
    assert ops(module.graph) == ["Unsqueeze"] * 3


def test_single_elements_have_the_axes_of_the_branch_that_gives_more() -> None:
    total = node("ReduceSum", ["x"], ["t"], keepdims=0)
    one = body([total, node("Reshape", ["t", "vector"], ["r"])], [], ["r"])
    nodes = [node("If", ["flag"], ["y"], then_branch=one, else_branch=body([total], [], ["t"]))]
    proto = model(nodes, [tensor("flag", [], BOOL), tensor("x", ["n"])], ["y"], [constant("vector", [1])])
    module = load(proto)
    assert output_types(module) == ["float32[1]"]
    assert [ops(g) for g in module.graph.nodes[0].subgraphs] == [["ReduceSum", "Reshape"], ["ReduceSum", "Reshape"]]


@pytest.mark.parametrize(("limit", "result"), [(5, "float32[n, 3]"), (0, "int64[]")])
def test_what_a_body_does_not_read_may_come_in_as_anything(limit: int, result: str) -> None:
    """A loop that is known never to run gives what it was given."""
    inputs = [tensor("i", [], INT64), tensor("go", [], BOOL), tensor("s", None)]
    made = body([node("Relu", ["x"], ["s2"])], inputs, ["go", "s2"])
    nodes = [node("Loop", ["limit", "", "zero"], ["final"], body=made)]
    proto = model(nodes, [tensor("x", ["n", 3])], ["final"], [constant("limit", limit), constant("zero", 0)])
    assert output_types(load(proto)) == [result]


def scan(**attributes: object) -> onnx.ModelProto:
    inner = [node("Add", ["s", "e"], ["s2"]), node("Relu", ["s2"], ["o"])]
    made = body(inner, [tensor("s", None), tensor("e", None)], ["s2", "o"])
    nodes = [node("Scan", ["start", "x"], ["final", "all"], num_scan_inputs=1, body=made, **attributes)]
    return model(nodes, [tensor("start", ["n"]), tensor("x", ["t", "n"])], ["final", "all"])


def test_scan_knows_its_length() -> None:
    assert output_types(load(scan())) == ["float32[n]", "float32[t, n]"]


def test_scan_along_other_axes() -> None:
    module = load(scan(scan_input_axes=[-1], scan_output_axes=[-1]), shapes={"x": ["n", "t"]})
    assert output_types(module) == ["float32[n]", "float32[n, t]"]


def test_scan_axes_are_checked() -> None:
    with pytest.raises(IngotError, match="an axis that the tensor does not have"):
        load(scan(scan_input_axes=[2]))
    with pytest.raises(IngotError, match="attribute of the wrong length"):
        load(scan(scan_input_axes=[0, 0]))


def test_bodies_may_use_names_of_their_own_twice() -> None:
    nodes = [
        node("If", ["flag"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")),
        node("If", ["flag"], ["z"], then_branch=branch("Exp"), else_branch=branch("Neg")),
    ]
    module = load(model(nodes, [tensor("flag", [], BOOL), tensor("x", [2])], ["y", "z"]))
    assert len(module.graph.nodes) == 2


def test_a_body_that_does_not_fit_is_refused() -> None:
    for made in (body([], [tensor("i", [], INT64)], ["i"]), body([], [], [])):
        nodes = [node("Loop", ["", "", "x"], ["y"], body=made)]
        with pytest.raises(IngotError, match="does not fit the node"):
            load(model(nodes, [tensor("x", [2])], ["y"]))


def test_nesting_is_limited() -> None:
    made = branch("Relu")
    for _ in range(14):
        inner = helper.make_node("If", ["flag"], ["r"], then_branch=made, else_branch=branch("Neg"))
        made = body([inner], [], ["r"])
    nodes = [node("If", ["flag"], ["y"], then_branch=made, else_branch=branch("Neg"))]
    with pytest.raises(IngotError, match="nested too deeply") as caught:
        load(model(nodes, [tensor("flag", [], BOOL), tensor("x", [2], FLOAT)], ["y"]))
    assert caught.value.code is ErrorCode.LIMIT_EXCEEDED
