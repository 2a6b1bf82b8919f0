"""Extents that turn out to be 1, or not to fit: what ONNX Runtime answers or refuses is answered or refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from runtime_service.loading.loader import load_model
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.program import Branch, launches
from tests.compiler_service.compiler.dynamic.compiled import (
    BOOL,
    EXECUTORS,
    FLOAT,
    INT64,
    Array,
    Case,
    Feeds,
    compiled,
    constant,
    graph,
    model,
    node,
    normal,
    tensor,
)

Y = [tensor("y", None)]


def feeds(inputs: Mapping[str, Sequence[str]], **sizes: Sequence[int]) -> list[Feeds]:
    """A request for every combination of sizes; ``inputs`` names the symbols of each."""
    found: list[Feeds] = []
    for values in itertools.product(*sizes.values()):
        size = dict(zip(sizes, values, strict=True))
        shapes = {n: [size[s] if s in size else int(s) for s in shape] for n, shape in inputs.items()}
        found.append({n: normal(*shape, seed=i) for i, (n, shape) in enumerate(shapes.items())})
    return found


def case(nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[str]], **sizes: Sequence[int]) -> Case:
    declared = [tensor(n, [int(s) if s.isdigit() else s for s in shape]) for n, shape in inputs.items()]
    return model(nodes, declared, Y), feeds(inputs, **sizes)


def two_vectors() -> Case:
    return case([node("Add", ["a", "b"], ["y"])], {"a": ["n"], "b": ["m"]}, n=(1, 3, 4), m=(0, 1, 3))


def a_chain_of_three() -> Case:
    nodes = [node("Mul", ["a", "b"], ["t"]), node("Sub", ["c", "t"], ["u"]), node("Add", ["u", "a"], ["y"])]
    return case(nodes, {"a": ["n", "5"], "b": ["m", "5"], "c": ["k", "5"]}, n=(1, 3), m=(1, 3), k=(1, 3, 2))


def innermost_axes() -> Case:
    nodes = [node("Add", ["a", "b"], ["s"]), node("Relu", ["s"], ["y"])]
    return case(nodes, {"a": ["3", "n"], "b": ["k", "m"]}, n=(1, 37), k=(1, 3, 2), m=(1, 37))


def where_of_three() -> Case:
    nodes = [
        constant("zero", 0.0, np.float32),
        node("Less", ["c", "zero"], ["b"]),
        node("Where", ["b", "x", "z"], ["y"]),
    ]
    return case(nodes, {"c": ["p", "q"], "x": ["r", "q"], "z": ["q"]}, p=(1, 3), r=(1, 3), q=(1, 4))


def batches_of_products() -> Case:
    return case(
        [node("MatMul", ["a", "b"], ["y"])],
        {"a": ["p", "5", "k"], "b": ["q", "l", "6"]},
        p=(1, 3),
        q=(1, 3),
        k=(7, 1),
        l=(7, 1),
    )


def a_product_and_what_follows() -> Case:
    nodes = [node("MatMul", ["a", "b"], ["t"]), node("Add", ["t", "c"], ["u"]), node("Relu", ["u"], ["y"])]
    return case(nodes, {"a": ["n", "16"], "b": ["16", "24"], "c": ["m", "k"]}, n=(1, 5), m=(1, 5), k=(1, 24))


def the_third_operand_of_gemm() -> Case:
    return case(
        [node("Gemm", ["a", "b", "c"], ["y"])],
        {"a": ["n", "4"], "b": ["4", "6"], "c": ["m", "k"]},
        n=(1, 3),
        m=(1, 3),
        k=(1, 6),
    )


def an_einsum() -> Case:
    return case(
        [node("Einsum", ["a", "b"], ["y"], equation="bij,bjk->bik")],
        {"a": ["p", "2", "3"], "b": ["q", "3", "n"]},
        p=(1, 3),
        q=(1, 3),
        n=(1, 2),
    )


def a_mask_of_attention() -> Case:
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Add", ["s", "m"], ["t"]),
        node("Softmax", ["t"], ["w"]),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    inputs = {
        "q": ["b", "2", "s", "8"],
        "k": ["b", "2", "8", "t"],
        "v": ["b", "2", "t", "8"],
        "m": ["mb", "1", "ms", "mt"],
    }
    return case(nodes, inputs, b=(1, 2), s=(1, 5), t=(6,), mb=(1, 2), ms=(1, 5), mt=(1, 6))


def expanded_as_another() -> Case:
    nodes = [
        node("Shape", ["z"], ["s"]),
        node("Expand", ["x", "s"], ["e"]),
        node("ReduceSum", ["e"], ["y"], keepdims=0),
    ]
    return case(nodes, {"x": ["p", "q"], "z": ["r", "t"]}, p=(1, 3), q=(1, 4), r=(1, 3), t=(1, 4))


def only_its_shape() -> Case:
    nodes = [node("Add", ["a", "b"], ["t"]), node("Shape", ["t"], ["s"]), node("ConstantOfShape", ["s"], ["y"])]
    return case(nodes, {"a": ["n", "k"], "b": ["m", "k"]}, n=(1, 3), m=(1, 3, 4), k=(2,))


def an_identity_that_checked() -> Case:
    """``x * 1``, where the 1 has the shape of another tensor."""
    nodes = [
        node("Shape", ["b"], ["s"]),
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Add", ["a", "zeros"], ["t"]),
        node("Max", ["t", "a"], ["y"]),
    ]
    return case(nodes, {"a": ["n"], "b": ["m"]}, n=(1, 3), m=(1, 3, 4))


def parts_that_add_up() -> Case:
    nodes = [constant("sizes", [2, 3]), node("Split", ["x", "sizes"], ["a", "b"], axis=1), node("Relu", ["a"], ["y"])]
    return case(nodes, {"x": ["n", "k"]}, n=(2,), k=(5, 6, 4))


def a_pyramid_of_features() -> Case:
    """Of 8 rows or fewer the coarser level has two and the finer one."""
    nodes = [
        node("MaxPool", ["x"], ["fine"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("MaxPool", ["fine"], ["coarse"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        constant("scales", [1.0, 1.0, 2.0, 2.0], np.float32),
        node(
            "Resize",
            ["coarse", "", "scales"],
            ["up"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        node("Add", ["fine", "up"], ["y"]),
    ]
    return case(nodes, {"x": ["n", "3", "h", "w"]}, n=(1,), h=(2, 4, 8, 6), w=(1, 4))


def found_in_data() -> Case:
    """As many rows as there are elements above zero, beside a constant of three."""
    nodes = [
        node("NonZero", ["x"], ["found"]),
        node("Cast", ["found"], ["rows"], to=FLOAT),
        constant("three", [1.0, 2.0, 3.0], np.float32),
        node("Add", ["rows", "three"], ["y"]),
    ]
    proto = model(nodes, [tensor("x", ["n"])], Y)
    return proto, [{"x": np.array(v, np.float32)} for v in ([0, 2, 0], [1, 1, 1], [1, 1], [5])]


def carried_by_a_loop() -> Case:
    body = graph(
        [node("Add", ["h", "x"], ["h2"]), node("Identity", ["c"], ["c2"])],
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("h", ["r", "s"])],
        [tensor("c2", [], BOOL), tensor("h2", ["r", "s"])],
    )
    nodes = [node("Loop", ["trips", "", "h0"], ["y"], body=body)]
    proto = model(nodes, [tensor("trips", [], INT64), tensor("h0", ["n", "4"]), tensor("x", ["m", "4"])], Y)
    return proto, [{"trips": np.array(3), **f} for f in feeds({"h0": ["n", "4"], "x": ["m", "4"]}, n=(1, 3), m=(1, 3))]


def axes_without_names() -> Case:
    nodes = [node("Add", ["a", "b"], ["t"]), node("ReduceMean", ["t"], ["y"], axes=[1])]
    proto = model(nodes, [tensor("a", [None, None]), tensor("b", [None, None])], Y)
    return proto, feeds({"a": ["n", "k"], "b": ["m", "l"]}, n=(1, 3), m=(1, 3), k=(1, 9), l=(1, 9))


def slopes() -> Case:
    return case([node("PRelu", ["a", "b"], ["y"])], {"a": ["n", "4"], "b": ["m"]}, n=(3,), m=(1, 4))


CASES: tuple[Callable[[], Case], ...] = (
    two_vectors,
    a_chain_of_three,
    innermost_axes,
    where_of_three,
    batches_of_products,
    a_product_and_what_follows,
    the_third_operand_of_gemm,
    an_einsum,
    a_mask_of_attention,
    expanded_as_another,
    only_its_shape,
    an_identity_that_checked,
    parts_that_add_up,
    a_pyramid_of_features,
    found_in_data,
    carried_by_a_loop,
    axes_without_names,
    slopes,
)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
@pytest.mark.parametrize("make", CASES, ids=lambda c: c.__name__)
def test_broadcasting(make: Callable[[], Case], opt_level: int) -> None:
    proto, requests = make()
    assert_answers_or_refuses(proto, requests, opt_level)


def assert_answers_or_refuses(proto: onnx.ModelProto, requests: Sequence[Feeds], opt_level: int) -> None:
    """As ONNX Runtime does, with both executors."""
    wanted = onnxruntime_answers(proto, requests)
    artifact = compiled(proto, opt_level)
    for executor in EXECUTORS:
        with load_model(artifact, threads=2, executor=executor) as loaded:
            for request, expected in zip(requests, wanted, strict=True):
                where = f"{executor}, {[a.shape for a in request.values()]}"
                if expected is None:
                    with pytest.raises(IngotError) as refused:
                        loaded.run(request)
                    assert refused.value.code is ErrorCode.INVALID_ARGUMENT, where
                else:
                    found = loaded.run(request)["y"]
                    assert found.shape == expected.shape, where
                    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5, err_msg=where)


def onnxruntime_answers(proto: onnx.ModelProto, requests: Sequence[Feeds]) -> list[Array | None]:
    """The first output for each request; None where it is refused."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array | None] = []
    for request in requests:
        try:
            found.append(session.run(None, dict(request))[0])
        except Exception:  # its exceptions have no common type of their own
            found.append(None)
    return found


OPERATORS: tuple[tuple[str, dict[str, Any]], ...] = (("Add", {}), ("Mul", {}), ("Sub", {}), ("Max", {}), ("Min", {}))
AROUND = ("Relu", "Softmax", "Neg", "ReduceSum", "Identity", "MatMul")


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_broadcasts(seed: int) -> None:
    """Operators over tensors whose axes have some of few names, at sizes that are often 1."""
    rng = np.random.default_rng(seed)
    symbols = ["n", "m", "k", "l"]
    rank = int(rng.integers(1, 4))
    inputs = {
        f"x{i}": [str(rng.choice([*symbols, "1", "3"])) for _ in range(int(rng.integers(1, rank + 1)))]
        for i in range(3)
    }
    values, nodes = list(inputs), list[onnx.NodeProto]()
    for step in range(int(rng.integers(2, 6))):
        name = f"t{step}"
        around = str(rng.choice(AROUND))
        if rng.random() < 0.3 and around not in ("MatMul", "ReduceSum"):
            nodes.append(node(around, [str(rng.choice(values))], [name]))
        else:
            op = str(rng.choice([o for o, _ in OPERATORS]))
            nodes.append(node(op, [str(v) for v in rng.choice(values, 2)], [name]))
        values.append(name)
    nodes.append(node("Sum", values, ["y"]))
    requests = [feeds(inputs, **{s: [int(rng.choice([1, 1, 3]))] for s in symbols})[0] for _ in range(8)]
    declared = [tensor(n, [int(s) if s.isdigit() else s for s in shape]) for n, shape in inputs.items()]
    assert_answers_or_refuses(model(nodes, declared, Y), requests, 3)


@pytest.mark.slow
def test_equal_extents_have_a_way_of_their_own() -> None:
    """Where the extents are equal, kernels are those of a model that says so; weights are kept once."""
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["u"]), node("Relu", ["u"], ["y"])]
    weights = {"w": normal(64, 64)}
    free = compiled(model(nodes, [tensor("x", ["n", 64]), tensor("b", ["m", 64])], Y, weights))
    named = compiled(model(nodes, [tensor("x", ["n", 64]), tensor("b", ["n", 64])], Y, weights))
    (branch,) = free.plan.steps
    assert isinstance(branch, Branch)
    assert (
        [s.label for s in launches(branch.then)] == [s.label for s in launches(named.plan.steps)] == ["MatMul+Add+Relu"]
    )
    assert len(launches(branch.otherwise)) == 2
    assert free.plan.weights_size == named.plan.weights_size
    assert free.report["variants"] == 2
    assert named.report["variants"] == 1
    with load_model(free, threads=1, executor="graph") as loaded:
        taken = [[t.seconds > 0 for t in loaded.profile({"x": normal(3, 64), "b": normal(m, 64)})] for m in (3, 1)]
    assert taken == [[True, False, False], [False, True, True]]


def squeezed(name: str, source: str, axis: int, result: str) -> list[onnx.NodeProto]:
    """``source.squeeze(axis)`` as torch exports it where the extent is not known."""
    axes = constant(f"{name}_axis", [axis])
    taken = node("Squeeze", [source, f"{name}_axis"], [f"{name}_then"])
    then = graph([axes, taken], [], [tensor(f"{name}_then", None)])
    other = graph([node("Identity", [source], [f"{name}_else"])], [], [tensor(f"{name}_else", None)])
    return [
        node("Shape", [source], [f"{name}_shape"]),
        constant(f"{name}_at", [axis]),
        constant(f"{name}_one", [1]),
        node("Gather", [f"{name}_shape", f"{name}_at"], [f"{name}_extent"]),
        node("Equal", [f"{name}_extent", f"{name}_one"], [f"{name}_condition"]),
        node("If", [f"{name}_condition"], [result], then_branch=then, else_branch=other),
    ]


def one_axis_squeezed() -> Case:
    """Reduced to the first axis afterwards, which has its place whether an axis went or not."""
    nodes = [*squeezed("s", "x", 1, "t"), node("Flatten", ["t"], ["f"], axis=1), node("Relu", ["f"], ["y"])]
    return case(nodes, {"x": ["n", "k", "4"]}, n=(1, 3), k=(1, 2))


def two_axes_squeezed() -> Case:
    nodes = [
        *squeezed("s", "x", 1, "t"),
        *squeezed("u", "z", 1, "v"),
        constant("all", [-1]),
        node("Reshape", ["t", "all"], ["flat_t"]),
        node("Reshape", ["v", "all"], ["flat_v"]),
        node("Concat", ["flat_t", "flat_v"], ["y"], axis=0),
    ]
    return case(nodes, {"x": ["2", "k", "4"], "z": ["3", "m"]}, k=(1, 2), m=(1, 5))


def squeezed_where_data_says_the_size() -> Case:
    nodes = [
        *squeezed("s", "x", 0, "t"),
        constant("all", [-1]),
        node("Reshape", ["t", "all"], ["flat"]),
        node("NonZero", ["flat"], ["found"]),
        node("Cast", ["found"], ["numbers"], to=FLOAT),
        node("Relu", ["numbers"], ["y"]),
    ]
    proto = model(nodes, [tensor("x", ["k", 4])], Y)
    return proto, [{"x": np.array(v, np.float32)} for v in ([[1, 0, 2, 0]], [[0, 0, 0, 1], [1, 1, 1, 1]])]


@pytest.mark.slow
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize(
    "make", [one_axis_squeezed, two_axes_squeezed, squeezed_where_data_says_the_size], ids=lambda c: c.__name__
)
def test_both_branches_of_a_squeeze(make: Callable[[], Case], opt_level: int) -> None:
    proto, requests = make()
    assert_answers_or_refuses(proto, requests, opt_level)
