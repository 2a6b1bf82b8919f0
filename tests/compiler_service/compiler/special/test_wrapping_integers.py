"""Integers at the ends of their range: quotients and remainders by constants, alone and of sums and products that wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model
from tests.compiler_service.compiler.special.special_cases import ONNX_TYPES, Array

KINDS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
DIVISORS = (-(2**40), -7, -5, -3, -2, -1, 1, 2, 3, 5, 7, 10, 127, 2**40 + 1)
LEVELS = (0, 1, 2, 3)


def numbers(kind: Any) -> Array:
    limits = np.iinfo(kind)
    near = {limits.min + i for i in range(6)} | {limits.max - i for i in range(6)}
    near |= {sign * 2**k + i for k in range(limits.bits) for i in (-1, 0, 1) for sign in (-1, 1)}
    return np.array(sorted(n for n in near if limits.min <= n <= limits.max), kind)


def run(graph: onnx.GraphProto, opt_level: int, *calls: dict[str, Array]) -> list[dict[str, Array]]:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    source, options = ModelSource.of(model.SerializeToString()), CompileOptions(opt_level=opt_level)
    with load_model(compile_model(source, host_target(), options, workers=0), threads=1) as loaded:
        return [dict(loaded.run(feeds)) for feeds in calls]


def remainders(kind: Any, fmod: int) -> onnx.GraphProto:
    limits = np.iinfo(kind)
    divisors = {f"c{i}": c for i, c in enumerate(DIVISORS) if limits.min <= c <= limits.max}
    nodes = [helper.make_node("Mod", ["x", c], [f"mod_{c}"], fmod=fmod) for c in divisors]
    nodes += [helper.make_node("Div", ["x", c], [f"div_{c}"]) for c in divisors]
    outputs = [helper.make_tensor_value_info(n.output[0], ONNX_TYPES[kind], ["n"]) for n in nodes]
    constants = [numpy_helper.from_array(np.array(c, kind), name) for name, c in divisors.items()]
    inputs = [helper.make_tensor_value_info("x", ONNX_TYPES[kind], ["n"])]
    return helper.make_graph(nodes, "g", inputs, outputs, constants)


@pytest.mark.sampled
@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_quotients_and_remainders_by_constants(kind: Any, opt_level: int, fmod: int) -> None:
    x = numbers(kind)
    found = run(remainders(kind, fmod), opt_level, {"x": x})[0]
    for i, c in enumerate(DIVISORS):
        if not np.iinfo(kind).min <= c <= np.iinfo(kind).max:
            continue
        quotients = [abs(int(v)) // abs(c) * (1 if (v < 0) == (c < 0) else -1) for v in x]
        exact = np.array([int(v) - q * c for v, q in zip(x, quotients, strict=True)], dtype=object)
        expected = exact if fmod else np.array([int(v) % c for v in x], dtype=object)
        np.testing.assert_array_equal(found[f"mod_c{i}"].astype(object), expected, err_msg=f"% {c}")
        wrapped = np.array([q % 2 ** np.iinfo(kind).bits for q in quotients], dtype=object)
        np.testing.assert_array_equal(found[f"div_c{i}"].astype(object) % 2 ** np.iinfo(kind).bits, wrapped)


STEPS = {
    "Mul": np.multiply,
    "Add": np.add,
    "Sub": np.subtract,
    "Mod": np.mod,
    "Max": np.maximum,
    "Min": np.minimum,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
}
"""What may follow one another; what compares takes the chain and its start."""


def chain(steps: list[tuple[str, int]], last: str) -> onnx.GraphProto:
    nodes, value = [], "x"
    for i, (op, _) in enumerate(steps):
        nodes.append(helper.make_node(op, [value, f"c{i}"], [f"v{i}"]))
        value = f"v{i}"
    nodes.append(helper.make_node(last, [value, "x"], ["y"]))
    kind = onnx.TensorProto.BOOL if last in ("Less", "GreaterOrEqual") else onnx.TensorProto.INT64
    constants = [numpy_helper.from_array(np.array(c, np.int64), f"c{i}") for i, (_, c) in enumerate(steps)]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.INT64, ["n"])]
    return helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", kind, ["n"])], constants)


def expected_of(steps: list[tuple[str, int]], last: str, x: Array) -> Array:
    value = x
    with np.errstate(all="ignore"):
        for op, c in steps:
            value = STEPS[op](value, np.int64(c))
        return np.asarray(STEPS[last](value, x))


STEP = st.tuples(st.sampled_from(["Mul", "Add", "Sub", "Mod"]), st.sampled_from([-7, -3, 2, 3, 6, 10, 2654435761]))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=4), st.sampled_from(["Max", "Min", "Less", "GreaterOrEqual"]))
def test_chains_that_wrap(steps: list[tuple[str, int]], last: str) -> None:
    x = numbers(np.int64)
    found = run(chain(steps, last), 3, {"x": x})[0]["y"]
    np.testing.assert_array_equal(found, expected_of(steps, last, x))


@pytest.mark.parametrize("opt_level", LEVELS)
@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([("Mul", 6), ("Mod", 3)], "Max"),
        ([("Mul", 2654435761), ("Mod", 10)], "Min"),
        ([("Add", 3), ("Mod", 3)], "Max"),
        ([("Add", 1)], "Less"),
        ([("Add", 1)], "Max"),
    ],
)
def test_hashes_wrap(steps: list[tuple[str, int]], last: str, opt_level: int) -> None:
    """Products and sums of elements overflow, and what is made of them is not what the simplified formula gives."""
    x = numbers(np.int64)
    np.testing.assert_array_equal(run(chain(steps, last), opt_level, {"x": x})[0]["y"], expected_of(steps, last, x))


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_far_outside(opt_level: int, upper: int) -> None:
    node = helper.make_node("Trilu", ["x", "k"], ["y"], upper=upper)
    inputs = [
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("k", onnx.TensorProto.INT64, []),
    ]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", "m"])]
    graph = helper.make_graph([node], "g", inputs, outputs)
    x = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
    cut = np.triu if upper else np.tril
    diagonals = (0, 3, -3, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**63 - 3, -(2**63) + 3)
    found = run(graph, opt_level, *({"x": x, "k": np.array(k)} for k in diagonals))
    for k, answer in zip(diagonals, found, strict=True):
        np.testing.assert_array_equal(answer["y"], cut(x, max(-100, min(100, k))), err_msg=str(k))
