"""If, Loop and Scan through the whole compiler and both executors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shared_ir.plan.program import Branch, Repeat, walk_steps
from tests.compiler_service.compiler.dynamic.compiled import (
    BOOL,
    FLOAT,
    INT64,
    Case,
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
ITERATION, GOES_ON = tensor("i", [], INT64), tensor("ci", [], BOOL)
KEEP_ON, KEPT_ON = node("Identity", ["ci"], ["co"]), tensor("co", [], BOOL)
TRUE = constant("t", True, bool)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def branches_of_different_sizes() -> Case:
    then = graph(
        [constant("a", [0]), constant("b", [2]), node("Slice", ["x", "a", "b"], ["u"])], [], [tensor("u", [None, 6])]
    )
    other = graph([node("Concat", ["x", "x"], ["e"], axis=0)], [], [tensor("e", [None, 6])])
    nodes = [
        node("If", ["p"], ["y"], then_branch=then, else_branch=other),
        node("Relu", ["y"], ["z"]),
        node("ReduceSum", ["z"], ["s"]),
    ]
    proto = model(nodes, [tensor("p", [], BOOL), X], [tensor("z", [None, 6]), tensor("s", [1, 1])])
    return proto, [{"p": np.array(p), "x": normal(n, 6)} for p in (True, False) for n in (2, 5)]


def branches_that_hand_on_outer_values() -> Case:
    then = graph(
        [node("Identity", ["k"], ["t1"]), node("Identity", ["x"], ["t2"])],
        [],
        [tensor("t1", [2]), tensor("t2", ["n", 6])],
    )
    other = graph(
        [node("Neg", ["k"], ["e1"]), node("Neg", ["x"], ["e2"])], [], [tensor("e1", [2]), tensor("e2", ["n", 6])]
    )
    nodes = [constant("k", [1, 2], np.float32), node("If", ["p"], ["y", "w"], then_branch=then, else_branch=other)]
    proto = model(nodes, [tensor("p", [], BOOL), X], [tensor("y", [2]), tensor("w", ["n", 6])])
    return proto, [{"p": np.array(p), "x": normal(4, 6)} for p in (True, False)]


def nested_branches() -> Case:
    inner_then = graph([node("Mul", ["x", "ten"], ["tt"])], [], [tensor("tt", ["n", 6])])
    inner_else = graph([node("Add", ["x", "s"], ["te"])], [], [tensor("te", ["n", 6])])
    then = graph(
        [
            constant("ten", 10, np.float32),
            node("Greater", ["s", "ten"], ["q"]),
            node("If", ["q"], ["u"], then_branch=inner_then, else_branch=inner_else),
        ],
        [],
        [tensor("u", ["n", 6])],
    )
    other = graph([node("Abs", ["x"], ["e"])], [], [tensor("e", ["n", 6])])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        constant("z", 0, np.float32),
        node("Greater", ["s", "z"], ["p"]),
        node("If", ["p"], ["y"], then_branch=then, else_branch=other),
    ]
    return model(nodes, [X], [tensor("y", ["n", 6])]), [{"x": normal(4, 6) + k} for k in (-3, 0.1, 5)]


def carried_values_that_change_places() -> Case:
    body = graph(
        [node("Add", ["p", "q"], ["r"]), node("Identity", ["q"], ["pn"]), node("Identity", ["p"], ["row"]), KEEP_ON],
        [ITERATION, GOES_ON, tensor("p", [1]), tensor("q", [1])],
        [KEPT_ON, tensor("pn", [1]), tensor("r", [1]), tensor("row", [1])],
    )
    nodes = [node("Loop", ["m", "", "a", "b"], ["x1", "x2", "s"], body=body)]
    inputs = [tensor("m", [], INT64), tensor("a", [1]), tensor("b", [1])]
    proto = model(nodes, inputs, [tensor("x1", [1]), tensor("x2", [1]), tensor("s", [None, 1])])
    start = {"a": np.array([0], np.float32), "b": np.array([1], np.float32)}
    return proto, [{"m": number(m), **start} for m in (1, 2, 10)]


def a_loop_that_ends_when_the_data_say_so() -> Case:
    odd = graph([node("Mul", ["v", "three"], ["u"]), node("Add", ["u", "one"], ["w"])], [], [tensor("w", [], INT64)])
    even = graph([node("Div", ["v", "two"], ["w2"])], [], [tensor("w2", [], INT64)])
    body = graph(
        [
            node("Mod", ["v", "two"], ["rest"]),
            node("Equal", ["rest", "one"], ["is_odd"]),
            node("If", ["is_odd"], ["next"], then_branch=odd, else_branch=even),
            node("Greater", ["next", "one"], ["co"]),
        ],
        [ITERATION, GOES_ON, tensor("v", [], INT64)],
        [KEPT_ON, tensor("next", [], INT64), tensor("next", [], INT64)],
    )
    nodes = [
        *(constant(n, v) for n, v in (("one", 1), ("two", 2), ("three", 3))),
        TRUE,
        node("Loop", ["", "t", "n"], ["y", "s"], body=body),
    ]
    proto = model(nodes, [tensor("n", [], INT64)], [tensor("y", [], INT64), tensor("s", [None], INT64)])
    return proto, [{"n": number(n)} for n in (2, 3, 27)]


def limits_and_conditions() -> Case:
    body = graph(
        [
            node("Add", ["acc", "x"], ["acc2"]),
            node("Cast", ["i"], ["fi"], to=FLOAT),
            node("Add", ["acc2", "fi"], ["row"]),
            KEEP_ON,
        ],
        [ITERATION, GOES_ON, tensor("acc", ["n", 6])],
        [KEPT_ON, tensor("acc2", ["n", 6]), tensor("row", ["n", 6])],
    )
    nodes = [node("Loop", ["m", "c", "z"], ["y", "s"], body=body)]
    inputs = [tensor("m", [], INT64), tensor("c", [], BOOL), X, tensor("z", ["n", 6])]
    proto = model(nodes, inputs, [tensor("y", ["n", 6]), tensor("s", ["k", "n", 6])])
    x = normal(3, 6)
    return proto, [
        {"m": number(m), "c": np.array(c), "x": x, "z": x / 2} for m in (0, 1, 5, 100) for c in (True, False)
    ]


def a_carried_value_that_grows() -> Case:
    body = graph(
        [node("Concat", ["acc", "x"], ["acc2"], axis=0), constant("four", 4), node("Less", ["i", "four"], ["co"])],
        [ITERATION, GOES_ON, tensor("acc", ["k", 6])],
        [KEPT_ON, tensor("acc2", ["k2", 6])],
    )
    nodes = [node("Loop", ["m", "", "x"], ["y"], body=body), node("ReduceSum", ["y"], ["s"])]
    proto = model(nodes, [tensor("m", [], INT64), X], [tensor("y", ["q", 6]), tensor("s", [1, 1])])
    return proto, [{"m": number(m), "x": normal(3, 6)} for m in (0, 1, 3, 100, 2)]


def loops_in_loops() -> Case:
    inner = graph(
        [
            node("Add", ["acc2", "x"], ["next"]),
            node("ReduceSum", ["next"], ["r"], keepdims=0),
            node("Identity", ["c2"], ["c3"]),
        ],
        [tensor("j", [], INT64), tensor("c2", [], BOOL), tensor("acc2", ["n", 6])],
        [tensor("c3", [], BOOL), tensor("next", ["n", 6]), tensor("r", [])],
    )
    body = graph(
        [node("Loop", ["three", "t", "acc"], ["o", "rows"], body=inner), KEEP_ON],
        [ITERATION, GOES_ON, tensor("acc", ["n", 6])],
        [KEPT_ON, tensor("o", ["n", 6]), tensor("rows", [3])],
    )
    nodes = [TRUE, constant("three", 3), node("Loop", ["m", "t", "x"], ["y", "s"], body=body)]
    proto = model(nodes, [tensor("m", [], INT64), X], [tensor("y", ["n", 6]), tensor("s", [None, 3])])
    return proto, [{"m": number(m), "x": normal(n, 6) / 10} for m in (1, 4) for n in (2, 3)]


def rows_whose_size_another_loop_decides() -> Case:
    inner = graph(
        [node("Cast", ["j"], ["jf"], to=FLOAT), node("Mul", ["jf", "fi"], ["r"]), node("Identity", ["c2"], ["c3"])],
        [tensor("j", [], INT64), tensor("c2", [], BOOL)],
        [tensor("c3", [], BOOL), tensor("r", [])],
    )
    body = graph(
        [node("Cast", ["i"], ["fi"], to=FLOAT), node("Loop", ["k", "t"], ["rows"], body=inner), KEEP_ON],
        [ITERATION, GOES_ON],
        [KEPT_ON, tensor("rows", [None])],
    )
    nodes = [TRUE, node("Loop", ["m", "t"], ["s"], body=body)]
    proto = model(nodes, [tensor("m", [], INT64), tensor("k", [], INT64)], [tensor("s", [None, None])])
    return proto, [{"m": number(m), "k": number(k)} for m in (1, 4) for k in (1, 5)]


def what_a_loop_finds_in_data() -> Case:
    body = graph(
        [
            node("Cast", ["i"], ["fi"], to=FLOAT),
            node("Greater", ["v", "fi"], ["mask"]),
            node("NonZero", ["mask"], ["nz"]),
            constant("ax", [0]),
            node("Squeeze", ["nz", "ax"], ["found"]),
            node("Concat", ["a", "found"], ["ao"], axis=0),
            KEEP_ON,
        ],
        [ITERATION, GOES_ON, tensor("a", [None], INT64)],
        [KEPT_ON, tensor("ao", [None], INT64)],
    )
    nodes = [TRUE, constant("e", np.zeros(0)), node("Loop", ["m", "t", "e"], ["y"], body=body)]
    proto = model(nodes, [tensor("m", [], INT64), tensor("v", ["n"])], [tensor("y", [None], INT64)])
    data = ([1, 2, 3, 0.5], [5, -1])
    return proto, [{"m": number(m), "v": np.array(v, np.float32)} for m in (0, 1, 4) for v in data]


def a_loop_in_a_branch() -> Case:
    body = graph(
        [node("Add", ["a", "x"], ["ao"]), KEEP_ON],
        [ITERATION, GOES_ON, tensor("a", ["n", 6])],
        [KEPT_ON, tensor("ao", ["n", 6])],
    )
    then = graph([node("Loop", ["m", "t", "x"], ["u"], body=body)], [], [tensor("u", ["n", 6])])
    other = graph([node("Neg", ["x"], ["e"])], [], [tensor("e", ["n", 6])])
    nodes = [TRUE, node("If", ["p"], ["y"], then_branch=then, else_branch=other)]
    proto = model(nodes, [tensor("p", [], BOOL), tensor("m", [], INT64), X], [tensor("y", ["n", 6])])
    return proto, [{"p": np.array(p), "m": number(m), "x": normal(4, 6)} for p in (True, False) for m in (0, 3)]


def the_iteration_as_an_index() -> Case:
    body = graph(
        [
            node("Gather", ["x", "i"], ["row"]),
            node("Add", ["i", "one"], ["e"]),
            node("Unsqueeze", ["e", "first"], ["end"]),
            node("Slice", ["x", "first", "end"], ["head"]),
            node("ReduceSum", ["head"], ["sum"], keepdims=0),
            node("Add", ["a", "sum"], ["ao"]),
            KEEP_ON,
        ],
        [ITERATION, GOES_ON, tensor("a", [])],
        [KEPT_ON, tensor("ao", []), tensor("row", [6])],
    )
    nodes = [
        node("Shape", ["x"], ["sh"]),
        constant("z", 0),
        constant("one", 1),
        constant("first", [0]),
        node("Gather", ["sh", "z"], ["m"]),
        TRUE,
        constant("a0", 0, np.float32),
        node("Loop", ["m", "t", "a0"], ["y", "s"], body=body),
    ]
    return model(nodes, [X], [tensor("y", []), tensor("s", ["n", 6])]), [{"x": normal(n, 6)} for n in (1, 7)]


def carried_values_that_never_change() -> Case:
    body = graph(
        [node("Add", ["a", "b"], ["ao"]), constant("k", [7], np.float32), node("Identity", ["b"], ["bo"]), KEEP_ON],
        [ITERATION, GOES_ON, tensor("a", ["n", 6]), tensor("b", ["n", 6])],
        [KEPT_ON, tensor("ao", ["n", 6]), tensor("bo", ["n", 6]), tensor("k", [1])],
    )
    nodes = [TRUE, node("Loop", ["m", "t", "x", "w"], ["y", "q", "s"], body=body)]
    inputs = [tensor("m", [], INT64), X, tensor("w", ["n", 6])]
    proto = model(nodes, inputs, [tensor("y", ["n", 6]), tensor("q", ["n", 6]), tensor("s", [None, 1])])
    return proto, [{"m": number(m), "x": normal(4, 6), "w": normal(4, 6, seed=1)} for m in (1, 3)]


def sequences_both_ways() -> Case:
    body = graph(
        [
            node("Add", ["a", "xi"], ["an"]),
            node("Mul", ["b", "wi"], ["bw"]),
            node("Tanh", ["bw"], ["bn"]),
            node("Sub", ["an", "bn"], ["o1"]),
            node("MatMul", ["an", "k"], ["o2"]),
        ],
        [tensor(n, [6]) for n in ("a", "b", "xi", "wi")],
        [tensor("an", [6]), tensor("bn", [6]), tensor("o1", [6]), tensor("o2", [3])],
    )
    attributes = {"scan_input_directions": [0, 1], "scan_output_directions": [1, 0], "num_scan_inputs": 2}
    nodes = [node("Scan", ["a0", "b0", "x", "w"], ["ya", "yb", "y1", "y2"], body=body, **attributes)]
    inputs = [tensor("a0", [6]), tensor("b0", [6]), X, tensor("w", ["n", 6]), tensor("k", [6, 3])]
    outputs = [tensor("ya", [6]), tensor("yb", [6]), tensor("y1", ["n", 6]), tensor("y2", ["n", 3])]
    fixed = {"a0": normal(6), "b0": normal(6, seed=1), "k": normal(6, 3)}
    return model(nodes, inputs, outputs), [{**fixed, "x": normal(n, 6), "w": normal(n, 6, seed=2)} for n in (1, 5)]


def sequences_along_other_axes() -> Case:
    body = graph(
        [node("Add", ["st", "xi"], ["st2"]), node("Mul", ["st2", "xi"], ["o"])],
        [tensor("st", [4]), tensor("xi", [4])],
        [tensor("st2", [4]), tensor("o", [4])],
    )
    attributes = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [-1], "scan_input_directions": [1]}
    nodes = [node("Scan", ["s0", "v"], ["sn", "ys"], body=body, **attributes)]
    proto = model(nodes, [tensor("s0", [4]), tensor("v", [4, "n"])], [tensor("sn", [4]), tensor("ys", [4, "n"])])
    return proto, [{"s0": normal(4), "v": normal(4, n)} for n in (1, 5, 17)]


def old_values_beside_new_ones() -> Case:
    """`a, b, c, h = b, c, a + b, h + h`, with rows of what `a` and `h` were; copies of the old values stand first."""
    nodes = [
        node("Identity", ["b"], ["a2"]),
        node("Identity", ["c"], ["b2"]),
        node("Identity", ["a"], ["r1"]),
        constant("flat", [-1]),
        node("Reshape", ["h", "flat"], ["r2"]),
        node("Add", ["a", "b"], ["c2"]),
        node("Add", ["h", "h"], ["h2"]),
        KEEP_ON,
    ]
    carried = [tensor(n, ["n", 6]) for n in "abch"]
    following = [tensor(n, ["n", 6]) for n in ("a2", "b2", "c2", "h2", "r1")]
    body = graph(nodes, [ITERATION, GOES_ON, *carried], [KEPT_ON, *following, tensor("r2", [None])])
    finals = ["ya", "yb", "yc", "yh"]
    loop = node("Loop", ["m", "", "x", "w", "x", "w"], [*finals, "s1", "s2"], body=body)
    inputs = [tensor("m", [], INT64), X, tensor("w", ["n", 6])]
    outputs = [*(tensor(n, ["n", 6]) for n in finals), tensor("s1", [None, "n", 6]), tensor("s2", [None, None])]
    x, w = normal(3, 6), normal(3, 6, seed=1)
    return model([loop], inputs, outputs), [{"m": number(m), "x": x, "w": w} for m in (0, 1, 2, 5)]


def the_value_of_the_iteration_before() -> Case:
    """`previous, i = i, i + 1` in a loop in a loop, while the old value is small."""
    inner = graph(
        [node("Identity", ["q"], ["p2"]), node("Add", ["q", "one"], ["q2"]), node("Less", ["q", "five"], ["go"])],
        [tensor("j", [], INT64), tensor("c2", [], BOOL), tensor("p", [], INT64), tensor("q", [], INT64)],
        [tensor("go", [], BOOL), tensor("p2", [], INT64), tensor("q2", [], INT64)],
    )
    body = graph(
        [
            node("Identity", ["b"], ["row"]),
            node("Loop", ["three", "", "a", "b"], ["a2", "b2"], body=inner),
            KEEP_ON,
        ],
        [ITERATION, GOES_ON, tensor("a", [], INT64), tensor("b", [], INT64)],
        [KEPT_ON, tensor("a2", [], INT64), tensor("b2", [], INT64), tensor("row", [], INT64)],
    )
    nodes = [
        *(constant(n, v) for n, v in (("one", 1), ("five", 5), ("three", 3))),
        node("Loop", ["m", "", "k", "k"], ["y", "z", "s"], body=body),
    ]
    outputs = [tensor("y", [], INT64), tensor("z", [], INT64), tensor("s", [None], INT64)]
    proto = model(nodes, [tensor("m", [], INT64), tensor("k", [], INT64)], outputs)
    return proto, [{"m": number(m), "k": number(k)} for m in (1, 2, 4) for k in (0, 4)]


def states_of_a_scan_before_their_update() -> Case:
    body = graph(
        [
            node("Identity", ["b"], ["an"]),
            node("Identity", ["a"], ["o1"]),
            node("Identity", ["b"], ["o2"]),
            node("Mul", ["b", "xi"], ["bn"]),
        ],
        [tensor(n, [6]) for n in ("a", "b", "xi")],
        [tensor(n, [6]) for n in ("an", "bn", "o1", "o2")],
    )
    attributes = {"scan_input_directions": [1], "scan_output_directions": [1, 0], "num_scan_inputs": 1}
    nodes = [node("Scan", ["a0", "a0", "x"], ["ya", "yb", "y1", "y2"], body=body, **attributes)]
    outputs = [tensor("ya", [6]), tensor("yb", [6]), tensor("y1", ["n", 6]), tensor("y2", ["n", 6])]
    return model(nodes, [tensor("a0", [6]), X], outputs), [{"a0": normal(6), "x": normal(n, 6)} for n in (1, 2, 5)]


def an_input_that_nobody_reads() -> Case:
    nodes = [node("Neg", ["x"], ["y"])]
    proto = model(nodes, [tensor("u", []), tensor("v", []), tensor("w", []), X], [tensor("y", ["n", 6])])
    return proto, [{**{n: np.array(0, np.float32) for n in "uvw"}, "x": normal(2, 6)}]


CASES: tuple[Callable[[], Case], ...] = (
    branches_of_different_sizes,
    branches_that_hand_on_outer_values,
    nested_branches,
    carried_values_that_change_places,
    a_loop_that_ends_when_the_data_say_so,
    limits_and_conditions,
    a_carried_value_that_grows,
    loops_in_loops,
    rows_whose_size_another_loop_decides,
    what_a_loop_finds_in_data,
    a_loop_in_a_branch,
    the_iteration_as_an_index,
    carried_values_that_never_change,
    sequences_both_ways,
    sequences_along_other_axes,
    old_values_beside_new_ones,
    the_value_of_the_iteration_before,
    states_of_a_scan_before_their_update,
)


@check_cases(CASES)
def test_answers_are_those_of_onnxruntime(case: Callable[[], Case], opt_level: int) -> None:
    artifact = assert_equals_onnxruntime(*case(), opt_level=opt_level)
    assert any(isinstance(s, (Branch, Repeat)) for s in walk_steps(artifact.plan.steps))


def test_inputs_may_outnumber_buffers() -> None:
    assert_equals_onnxruntime(*an_input_that_nobody_reads())
