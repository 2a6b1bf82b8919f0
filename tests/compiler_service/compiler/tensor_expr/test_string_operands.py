"""Strings are taken where elements are moved or compared, and nowhere else: later they are numbers like others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.tensor_expr.registry import OPERATORS, infer
from compiler_service.compiler.tensor_expr.strings import MOVERS
from compiler_service.compiler.tensor_expr.tensor import Tensor, placeholder
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError


def s(*shape: int) -> Tensor:
    return placeholder("s", shape, DType.STRING)


def i(*shape: int) -> Tensor:
    return placeholder("i", shape, DType.INT64)


def known(*numbers: int) -> Tensor:
    return placeholder("k", (len(numbers),), DType.INT64, np.array(numbers, object))


FLAGS = placeholder("b", (3,), DType.BOOL)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "dtype"),
    [
        ("Equal", (s(3), s(3)), {}, DType.BOOL),
        ("Where", (FLAGS, s(3), s(1)), {}, DType.STRING),
        ("Concat", (s(3), s(2)), {"axis": 0}, DType.STRING),
        ("Gather", (s(3), i(2)), {}, DType.STRING),
        ("Pad", (s(3), known(1, 1)), {}, DType.STRING),
        ("ingot.Lookup", (s(3), s(2), i(3)), {}, DType.INT64),
        ("ingot.Lookup", (i(3), i(2), s(3)), {}, DType.STRING),
        ("Shape", (s(3),), {}, DType.INT64),
    ],
)
def test_taken(op: str, inputs: tuple[Tensor, ...], attributes: dict[str, Any], dtype: DType) -> None:
    (found, *_) = infer(op, inputs, attributes)
    assert found is not None
    assert found.dtype is dtype


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "code"),
    [
        ("Equal", (s(3), i(3)), {}, ErrorCode.TYPE_MISMATCH),
        ("Where", (FLAGS, s(3), i(3)), {}, ErrorCode.TYPE_MISMATCH),
        ("Concat", (s(3), i(3)), {"axis": 0}, ErrorCode.TYPE_MISMATCH),
        ("ingot.Lookup", (s(3), i(2), i(3)), {}, ErrorCode.TYPE_MISMATCH),
        ("Gather", (i(3), s(3)), {}, ErrorCode.UNSUPPORTED_DTYPE),
        ("Pad", (s(3), known(1, 1), i()), {}, ErrorCode.TYPE_MISMATCH),
        ("ScatterElements", (s(3), i(3), s(3)), {"reduction": "add"}, ErrorCode.UNSUPPORTED_ATTRIBUTE),
        ("ingot.Sorted", (s(3),), {}, ErrorCode.UNSUPPORTED_DTYPE),
        ("Add", (s(3), s(3)), {}, ErrorCode.UNSUPPORTED_DTYPE),
        ("Less", (s(3), s(3)), {}, ErrorCode.UNSUPPORTED_DTYPE),
    ],
)
def test_refused(op: str, inputs: tuple[Tensor, ...], attributes: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(IngotError) as caught:
        infer(op, inputs, attributes)
    assert caught.value.code is code


def test_every_mover_is_an_operator() -> None:
    assert set(MOVERS) <= set(OPERATORS)
