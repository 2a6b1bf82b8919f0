"""What exported models do with sizes: detection heads, masks, padding to a multiple, decoding token by token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tests.compiler_service.compiler.dynamic.compiled import (
    BOOL,
    FLOAT,
    INT64,
    Case,
    Feeds,
    assert_equals_onnxruntime,
    check_cases,
    constant,
    graph,
    model,
    node,
    normal,
    tensor,
)

X = tensor("x", ["n", 6])


def slices_relative_to_a_size() -> Case:
    """``x[0 : n - 5]`` and ``x[5 - n : n]``: nobody knows the sign of the bounds before the run."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        constant("zero", [0]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        constant("five", [5]),
        node("Sub", ["n", "five"], ["end"]),
        node("Slice", ["x", "zero", "end", "zero"], ["a"]),
        node("Neg", ["end"], ["start"]),
        node("Slice", ["x", "start", "n", "zero"], ["b"]),
        node("Relu", ["a"], ["y"]),
        node("Relu", ["b"], ["z"]),
    ]
    proto = model(nodes, [X], [tensor("y", [None, 6]), tensor("z", [None, 6])])
    return proto, [{"x": normal(n, 6)} for n in (7, 3, 12, 6)]


def a_detection_head() -> Case:
    """Suppression, the scores of what is left, and the best ten of these."""
    nodes = [
        *(constant(n, v) for n, v in (("most", [50]), ("first", [0]), ("second", [1]), ("flat", [-1]), ("ten", [10]))),
        constant("overlap", [0.5], np.float32),
        constant("least", [0.3], np.float32),
        constant("one", 1),
        constant("two", 2),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["selected"]),
        node("Gather", ["selected", "one"], ["kind"], axis=1),
        node("Gather", ["selected", "two"], ["place"], axis=1),
        node("Squeeze", ["boxes", "first"], ["all_boxes"]),
        node("Squeeze", ["scores", "first"], ["all_scores"]),
        node("Gather", ["all_boxes", "place"], ["good_boxes"], axis=0),
        node("Shape", ["all_scores"], ["shape"]),
        node("Gather", ["shape", "second"], ["count"], axis=0),
        node("Mul", ["kind", "count"], ["row"]),
        node("Add", ["row", "place"], ["index"]),
        node("Reshape", ["all_scores", "flat"], ["flat_scores"]),
        node("Gather", ["flat_scores", "index"], ["good_scores"], axis=0),
        node("Shape", ["place"], ["found"]),
        node("Concat", ["found", "ten"], ["limits"], axis=0),
        node("ReduceMin", ["limits"], ["k"], keepdims=1),
        node("TopK", ["good_scores", "k"], ["best", "order"]),
        node("Gather", ["good_boxes", "order"], ["best_boxes"], axis=0),
        node("Gather", ["kind", "order"], ["best_kind"], axis=0),
        node("Cast", ["best_kind"], ["kinds"], to=FLOAT),
        node("Unsqueeze", ["kinds", "second"], ["kind_column"]),
        node("Unsqueeze", ["best", "second"], ["score_column"]),
        node("Concat", ["kind_column", "score_column", "best_boxes"], ["y"], axis=1),
    ]
    inputs = [tensor("boxes", [1, "count", 4]), tensor("scores", [1, "classes", "count"])]
    rng = np.random.default_rng(0)

    def request(count: int, classes: int, scale: float = 1.0) -> Feeds:
        low = rng.random((1, count, 2))
        boxes = np.concatenate([low, low + rng.random((1, count, 2)) / 2], -1).astype(np.float32)
        return {"boxes": boxes, "scores": (scale * rng.random((1, classes, count))).astype(np.float32)}

    proto = model(nodes, inputs, [tensor("y", [None, 6]), tensor("found", [1], INT64)])
    return proto, [request(20, 3), request(100, 2), request(3, 1), request(5, 2, scale=0)]


def padding_to_a_multiple() -> Case:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        constant("zero", [0]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        constant("eight", [8]),
        node("Mod", ["n", "eight"], ["rest"]),
        node("Sub", ["eight", "rest"], ["missing"]),
        node("Mod", ["missing", "eight"], ["pad"]),
        constant("before", [0, 0]),
        node("Concat", ["before", "pad", "zero"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        constant("blocks", [-1, 8, 6]),
        node("Reshape", ["padded", "blocks"], ["y"]),
    ]
    return model(nodes, [X], [tensor("y", [None, 8, 6])]), [{"x": normal(n, 6)} for n in (1, 8, 13)]


def masks_of_lengths() -> Case:
    nodes = [
        node("ReduceMax", ["lengths"], ["longest"], keepdims=0),
        constant("zero", 0),
        constant("one", 1),
        node("Range", ["zero", "longest", "one"], ["places"]),
        constant("axis", [1]),
        node("Unsqueeze", ["lengths", "axis"], ["column"]),
        node("Less", ["places", "column"], ["inside"]),
        node("Cast", ["inside"], ["y"], to=FLOAT),
        node("ReduceSum", ["y", "axis"], ["z"], keepdims=0),
    ]
    proto = model(nodes, [tensor("lengths", ["b"], INT64)], [tensor("y", ["b", None]), tensor("z", ["b"])])
    return proto, [{"lengths": np.array(v)} for v in ([3, 1, 2], [5], [1, 1])]


def arithmetic_on_chosen_rows() -> Case:
    nodes = [
        node("Greater", ["x", "t"], ["mask"]),
        node("NonZero", ["mask"], ["places"]),
        constant("zero", 0),
        node("Gather", ["places", "zero"], ["rows"], axis=0),
        node("Gather", ["x", "rows"], ["chosen"], axis=0),
        node("ReduceMean", ["chosen"], ["mean"], axes=[0], keepdims=0),
        node("Sub", ["chosen", "mean"], ["centered"]),
        node("MatMul", ["centered", "w"], ["product"]),
        node("Softmax", ["product"], ["y"]),
    ]
    proto = model(nodes, [X, tensor("t", []), tensor("w", [6, 4])], [tensor("y", [None, 4])])
    fixed = {"t": np.array(0.5, np.float32), "w": normal(6, 4, seed=1)}
    return proto, [{"x": normal(n, 6), **fixed} for n in (4, 30)]


def decoding_until_a_stop_token() -> Case:
    body = graph(
        [
            constant("last", [-1]),
            constant("first", [0]),
            node("Gather", ["tokens", "last"], ["token"], axis=0),
            node("Gather", ["embedding", "token"], ["e"], axis=0),
            node("MatMul", ["e", "w"], ["logits"]),
            node("ArgMax", ["logits"], ["next"], axis=1, keepdims=0),
            node("Concat", ["tokens", "next"], ["more"], axis=0),
            node("Equal", ["next", "first"], ["stops"]),
            node("Not", ["stops"], ["goes"]),
            node("Squeeze", ["goes", "first"], ["co"]),
        ],
        [tensor("i", [], INT64), tensor("ci", [], BOOL), tensor("tokens", [None], INT64)],
        [tensor("co", [], BOOL), tensor("more", [None], INT64)],
    )
    nodes = [constant("most", 20), constant("t", True, bool), node("Loop", ["most", "t", "start"], ["y"], body=body)]
    inputs = [tensor("start", ["k"], INT64), tensor("embedding", [9, 5]), tensor("w", [5, 9])]
    proto = model(nodes, inputs, [tensor("y", [None], INT64)])
    return proto, [
        {"start": np.array([s]), "embedding": normal(9, 5, seed=s), "w": normal(5, 9, seed=9 + s)} for s in range(1, 6)
    ]


def a_funnel() -> Case:
    """A length that is halved twice, stretched by 4 and cut again, as a funnel transformer does it."""
    values = {
        "zero": [0],
        "one": [1],
        "two": [2],
        "end": [2**62],
        "last": [-1],
        "four": [4],
        "six": [6],
        "none": [0],
        "three": [3],
    }
    nodes = [constant(name, value) for name, value in values.items()]

    def pooled(x: str, y: str) -> list[onnx.NodeProto]:
        return [
            node("Slice", [x, "zero", "one", "one"], [f"{y}_first"]),
            node("Slice", [x, "zero", "last", "one"], [f"{y}_rest"]),
            node("Concat", [f"{y}_first", f"{y}_rest"], [f"{y}_all"], axis=1),
            node("Unsqueeze", [f"{y}_all", "one"], [f"{y}_image"]),
            node("AveragePool", [f"{y}_image"], [f"{y}_half"], kernel_shape=[2, 1], strides=[2, 1], ceil_mode=1),
            node("Squeeze", [f"{y}_half", "one"], [y]),
        ]

    nodes += [
        *pooled("x", "half"),
        *pooled("half", "quarter"),
        node("Slice", ["quarter", "zero", "one", "one"], ["first"]),
        node("Slice", ["quarter", "one", "end", "one"], ["rest"]),
        node("Shape", ["rest"], ["batch"], start=0, end=1),
        node("Shape", ["rest"], ["length"], start=1, end=2),
        node("Unsqueeze", ["rest", "two"], ["columns"]),
        node("Concat", ["batch", "length", "four", "six"], ["wide"], axis=0),
        node("Expand", ["columns", "wide"], ["repeated"]),
        node("Mul", ["length", "four"], ["longer"]),
        node("Concat", ["batch", "longer", "six"], ["flat"], axis=0),
        node("Reshape", ["repeated", "flat"], ["stretched"]),
        node("Concat", ["none", "none", "none", "none", "three", "none"], ["pads"], axis=0),
        node("Pad", ["stretched", "pads"], ["padded"]),
        node("Shape", ["x"], ["whole"], start=1, end=2),
        node("Sub", ["whole", "one"], ["cut"]),
        node("Slice", ["padded", "zero", "cut", "one"], ["fitting"]),
        node("Concat", ["first", "fitting"], ["up"], axis=1),
        node("Add", ["up", "x"], ["sum"]),
        node("Softmax", ["sum"], ["y"]),
    ]
    proto = model(nodes, [tensor("x", ["b", "t", 6])], [tensor("y", None)])
    return proto, [{"x": normal(2, t, 6)} for t in (9, 8, 17, 5)]


CASES: tuple[Callable[[], Case], ...] = (
    slices_relative_to_a_size,
    a_detection_head,
    padding_to_a_multiple,
    masks_of_lengths,
    arithmetic_on_chosen_rows,
    decoding_until_a_stop_token,
    a_funnel,
)


@check_cases(CASES)
def test_answers_are_those_of_onnxruntime(case: Callable[[], Case], opt_level: int) -> None:
    assert_equals_onnxruntime(*case(), opt_level=opt_level)
