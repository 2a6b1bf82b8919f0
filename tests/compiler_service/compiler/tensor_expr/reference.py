"""One node run by the reference evaluator of onnx, and by our definition of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.meaning.rounding import Array
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.arrays import dtype_of
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim, symbol
from tests.compiler_service.compiler.tensor_expr.node_cases import known

OPSET = 23


def random(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Array:
    """Numbers around 0; small non-negative ones where the type is unsigned."""
    generator = np.random.default_rng(seed + 31 * len(shape) + sum(shape))
    kind = np.dtype(dtype).kind
    if kind == "b":
        return generator.random(shape) < 0.5
    if kind in "iu":
        return generator.integers(0 if kind == "u" else -9, 10, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def by_reference(op: str, inputs: Sequence[Array | None], attributes: dict[str, Any], outputs: int = 1) -> list[Array]:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = onnx.helper.make_node(op, names, results, **attributes)

    def info(name: str, array: Array | None = None) -> onnx.ValueInfoProto:
        kind = onnx.TensorProto.FLOAT if array is None else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return onnx.helper.make_tensor_value_info(name, kind, None)

    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    graph = onnx.helper.make_graph([node], op, [info(n, x) for n, x in feeds.items()], [info(n) for n in results])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
    with np.errstate(all="ignore"):
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]


def by_definition(
    op: str,
    inputs: Sequence[Array | None],
    attributes: dict[str, Any],
    *,
    outputs: int = 1,
    symbolic: Sequence[Sequence[str | None]] = (),
) -> list[Array]:
    """Our answer. ``symbolic`` names dims of the inputs that are to be symbols; all others are numbers."""
    symbols: dict[str, int] = {}
    placeholders: list[Tensor | None] = []
    for position, x in enumerate(inputs):
        if x is None:
            placeholders.append(None)
            continue
        names = symbolic[position] if position < len(symbolic) else ()
        shape: list[Dim] = list(x.shape)
        for axis, name in enumerate(names):
            if name is not None:
                shape[axis] = symbol(name)
                symbols[name] = x.shape[axis]
        value = known(x) if not names and x.ndim <= 1 else None
        placeholders.append(placeholder(f"x{position}", shape, dtype_of(x), value))
    found = OPERATORS[op].define(placeholders, attributes)[:outputs]
    feeds = {t: x for t, x in zip(placeholders, inputs, strict=True) if t is not None and x is not None}
    return evaluate([y for y in found if y is not None], feeds, symbols)


def tolerance(dtype: DType) -> float:
    return {DType.FLOAT16: 4e-3, DType.BFLOAT16: 2e-2, DType.FLOAT64: 1e-9}.get(dtype, 2e-5)


def assert_close(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    """Equal shapes, dtypes and elements; floats within what their width allows."""
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        limit = tolerance(dtype_of(a))
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=limit, atol=limit)
