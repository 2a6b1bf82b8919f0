"""How many elements of a value are followed while compiling: importer, passes, evaluation and interpreter agree."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_service.compiler.frontend.importing.inference import KnownValues
from compiler_service.compiler.graph_passes.analysis.known import known_values
from compiler_service.compiler.graph_passes.analysis.values import operand
from compiler_service.compiler.reference import interpret
from compiler_service.compiler.tensor_expr.meaning.known import (
    MOST_KNOWN_ELEMENTS,
    MOST_KNOWN_FLOATS,
    as_objects,
    may_be_known,
)
from compiler_service.compiler.tensor_expr.meaning.symbolic import evaluate_symbolic
from compiler_service.compiler.tensor_expr.tensor import compute, placeholder
from shared_ir.dtype import DType
from shared_ir.graph.ir import Graph, Value
from shared_ir.types import TensorType

SIZES = sorted({0, 1, *(n + d for n in (MOST_KNOWN_FLOATS, MOST_KNOWN_ELEMENTS, 64, 4096) for d in (0, 1))})


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [DType.INT64, DType.BOOL, DType.FLOAT32])
def test_all_agree(dtype: DType, size: int) -> None:
    array = np.zeros(size, dtype.numpy)
    value = Value("x", TensorType(dtype, (size,)))
    expected = may_be_known(dtype, size)
    imported = KnownValues()
    imported.add_constant(value, array)
    assert (imported.get(value) is not None) is expected
    assert (value in known_values(Graph("g", (), (value,), (), {value: array}))) is expected
    assert (operand(value, array).value is not None) is expected
    assert (interpret._operand(value, array).value is not None) is expected


@pytest.mark.parametrize("size", SIZES)
def test_results_are_followed_as_far_as_constants(size: int) -> None:
    numbers = as_objects(np.zeros(1, np.int64))
    one = placeholder("x", (1,), DType.INT64, numbers)
    found = evaluate_symbolic(compute((size,), lambda i: one[0] + i, name="y"))
    assert (found is not None) is may_be_known(DType.INT64, size)


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T])
def test_objects_keep_the_order(array: np.ndarray) -> None:
    found = as_objects(array)
    assert found.dtype == object
    assert found.tolist() == array.tolist()
