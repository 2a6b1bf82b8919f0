"""What this field's best-known tutorials show, in our names: each of their stories is told in a few lines of public API."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import codegen, ir, te

RANDOM = np.random.default_rng(0)


def network() -> onnx.ModelProto:
    """Convolution, batch normalisation, ReLU, and an average that a constant scales."""
    weights = {"k": (8, 3, 3, 3), "scale": (8,), "shift": (8,), "mean": (8,), "variance": (8,)}
    random = np.random.default_rng(1)
    arrays = {name: random.random(shape, np.float32) + np.float32(0.5) for name, shape in weights.items()}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["b"], "norm"),
        helper.make_node("Relu", ["b"], ["r"], "relu"),
        helper.make_node("Add", ["one", "one"], ["two"], "two"),
        helper.make_node("Mul", ["r", "two"], ["y"], "twice"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 8, 8])],
        [numpy_helper.from_array(a, n) for n, a in (arrays | {"one": np.ones(1, np.float32)}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def picture(count: int = 2) -> np.ndarray:
    return RANDOM.random((count, 3, 8, 8), np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return ir.from_onnx(network()).interpret(x)[0]


def test_vector_add_scheduled_by_hand_and_not_for_a_device() -> None:
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    s = te.schedule(c)
    outer, inner = s[c].split("i", 64)
    before = str(s)
    with pytest.raises(ingot.IngotError, match=r"blockIdx\.x"):
        s[c].bind(outer, "blockIdx.x")
    assert str(s) == before
    s[c].parallel(outer).vectorize(inner, 16)
    text = str(te.lower(s, [a, b, c], name="add"))
    assert "vectorized" in text
    assert str(ir.LoopProgram.parse(text)) == text
    add = te.build({"add": (s, [a, b])})["add"]
    x, y = RANDOM.random((2, 1000), np.float32)
    np.testing.assert_array_equal(add(x, y), x + y)


def test_a_convolution_is_folded_and_fused_by_a_list_of_passes() -> None:
    module = ir.from_onnx(network())
    passes = ir.Sequential(
        [
            ir.passes.FoldConstants(),
            ir.passes.SimplifyAlgebra(),
            ir.passes.FoldBatchNorm(),
            ir.passes.EliminateDeadCode(),
        ]
    )
    folded = passes(module)
    assert [n.op for n in folded.main.graph.nodes] == ["Conv", "Relu", "Mul"]
    with ir.PassContext(opt_level=3, disabled=["fold-batch-norm"]):
        assert "BatchNormalization" in [n.op for n in passes(module).main.graph.nodes]
    fused = ir.Sequential(
        [ir.passes.ExpandOperators(), ir.passes.LowerLoops(), ir.passes.FoldShapes(), ir.passes.Fuse()]
    )(folded)
    (group,) = fused.main.graph.nodes
    assert [n.op for n in group.subgraphs[0].nodes] == ["Conv", "Relu", "Mul"]
    x = picture()
    for each in (folded, fused):
        np.testing.assert_allclose(each.interpret(x)[0], expected(x), rtol=1e-4, atol=1e-5)


def test_a_model_is_its_graph_as_json_its_library_and_its_parameters(tmp_path: Path) -> None:
    artifact = ingot.compile(network())
    artifact.save(tmp_path, tag="v1")
    blobs = [path.read_bytes() for path in (tmp_path / "blobs" / "sha256").iterdir()]
    assert bytes(artifact.library) in blobs
    assert bytes(artifact.weights) in blobs
    plans = [json.loads(b) for b in blobs if b.startswith(b'{"arena_size"')]
    (plan,) = plans
    assert [k["name"] for k in plan["kernels"]] == [k.name for k in artifact.plan.kernels]
    assert {name for step in plan["steps"] for name in step["nodes"]} >= {"conv", "relu", "twice"}
    x = picture(3)
    with ingot.load(tmp_path, executor="graph", tag="v1") as model:
        np.testing.assert_allclose(model.run({"x": x})["y"], expected(x), rtol=1e-4, atol=1e-5)


def test_functions_of_a_module_are_got_by_name(tmp_path: Path) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    doubled = te.compute((n,), lambda i: a[i] * 2.0, name="doubled")
    negated = te.compute((n,), lambda i: -a[i], name="negated")
    module = te.build({"double": (te.schedule(doubled), [a]), "negate": (te.schedule(negated), [a])})
    module.save(tmp_path, home=tmp_path)
    for each in (module, ingot.load_module(tmp_path, home=tmp_path)):
        x = RANDOM.random(7, np.float32)
        np.testing.assert_array_equal(each["double"](x), x * 2)
        np.testing.assert_array_equal(each["negate"](x), -x)
        with pytest.raises((KeyError, ingot.IngotError), match="halve"):
            each["halve"]


def test_parts_are_annotated_merged_and_partitioned() -> None:
    patterns = [
        codegen.NodePattern("Relu(Conv(x, k, b_or_none))", constants=frozenset({"k"})),
        codegen.NodePattern("Mul(x, y)"),
    ]
    module = ir.Sequential([ir.passes.FoldConstants(), ir.passes.SimplifyAlgebra(), ir.passes.FoldBatchNorm()])(
        ir.from_onnx(network())
    )
    annotated = ir.passes.AnnotateTarget("theirs", patterns)(module)
    assert str(annotated).count("ingot.Group") == 2
    merged = ir.passes.MergeRegions()(annotated)
    assert str(merged).count("ingot.Group") == 1
    partitioned = ir.passes.PartitionGraph()(merged)
    assert re.search(r'ingot\.Invoke\(%x\) \{function="theirs_0", codegen="theirs"\}', str(partitioned))
    assert [n.op for n in partitioned["theirs_0"].graph.nodes] == ["Conv", "Relu", "Mul"]  # type: ignore[union-attr]
    x = picture()
    np.testing.assert_allclose(partitioned.interpret(x)[0], expected(x), rtol=1e-4, atol=1e-5)
