"""Operators that look at one element of each operand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracle.builder import Builder
from tests.oracle.families.table import drawn_attributes, drawn_opset, drawn_type, family


@family(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu",
    "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu", "BitwiseNot", "Identity", "Swish",
)  # fmt: skip
def unary(b: Builder, op: str) -> None:
    drawn_opset(b, *((24,) if op == "Swish" else (22, 20)))
    dtype = drawn_type(b, op)
    ends = op == "Shrink" and dtype.kind in "iu"  # which both oracles compute in floats, and convert beyond their range
    x = b.input(b.shape(), dtype, "tame" if ends else "any")
    b.pointwise = op not in _CANCELLING
    b.out(b.node(op, x, **drawn_attributes(b, op)), dtype=dtype if op not in ("IsInf", "IsNaN") else None)


_CANCELLING = ("Gelu", "HardSigmoid", "HardSwish")
"""Differences of numbers that may be almost equal: the error is relative to these."""


@family(
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift",
)  # fmt: skip
def binary(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 18)
    dtype = drawn_type(b, op)
    shape = b.shape()
    narrow = b.broadcast(shape)
    pair = (shape, narrow) if not b.draw.rarely(3) else (narrow, shape)
    limits = _operand_limits(op, dtype)
    names = [b.either(s, dtype, **limits[i]) for i, s in enumerate(pair)]
    attributes = {}
    if op == "BitShift":
        attributes["direction"] = b.draw.choose(("LEFT", "RIGHT"))
    if op == "Mod" and np.dtype(dtype).kind not in "iu":
        attributes["fmod"] = 1
    elif op == "Mod":
        attributes["fmod"] = b.draw.choose((0, 1))
    b.pointwise = True
    compares = op in ("And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    b.out(b.node(op, *names, **attributes), dtype=None if compares else dtype)


def _operand_limits(op: str, dtype: np.dtype) -> list[dict[str, Any]]:
    """Divisors and shifts that are defined, powers that are no extremes."""
    whole = np.dtype(dtype).kind in "iu"
    if op in ("Div", "Mod") and whole:
        return [{}, {"values": "tame", "low": 1, "high": 8}]
    if op == "BitShift":
        return [{}, {"values": "tame", "low": 0, "high": 7}]
    if op == "Pow":
        return (
            [{"values": "tame", "low": -3, "high": 3}, {"values": "tame", "low": 0, "high": 3}] if whole else [{}, {}]
        )
    return [{}, {}]


@family("Max", "Min", "Sum", "Mean")
def variadic(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 13)
    dtype = drawn_type(b, op)
    shape = b.shape()
    others = [b.broadcast(shape) for _ in range(b.draw.choose((1, 2, 0, 3)))]
    b.pointwise = op in ("Max", "Min")
    b.out(b.node(op, *(b.either(s, dtype) for s in (shape, *others))), dtype=dtype)


@family("Where")
def where(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, 1)
    shape = b.shape()
    shapes = [shape, b.broadcast(shape), b.broadcast(shape)]
    order = b.draw.order(3)
    a, c, d = (shapes[i] for i in order)
    b.out(b.node(op, b.either(a, np.bool_), b.either(c, dtype), b.either(d, dtype)), dtype=dtype)


@family("Clip")
def clip(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op)
    x = b.input(b.shape(), dtype)
    low = b.either((), dtype, "tame", low=-4, high=0) if not b.draw.rarely() else ""
    high = b.either((), dtype, "tame", low=1, high=5) if not b.draw.rarely() else ""
    b.out(b.node(op, x, low, high) if high else b.node(op, x, low) if low else b.node(op, x), dtype=dtype)


@family("PRelu")
def prelu(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op)
    shape = b.shape(1)
    b.out(b.node(op, b.input(shape, dtype, "tame"), b.either(b.broadcast(shape), dtype, "tame")), dtype=dtype)


_CASTS = (
    "float32",
    "int64",
    "int32",
    "float64",
    "bool",
    "float16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "uint32",
    "uint64",
)


@family("Cast", "CastLike")
def cast(b: Builder, op: str) -> None:
    """Numbers that the type they are cast to can hold; what becomes of others is left open."""
    drawn_opset(b, 21, 19)
    source, target = np.dtype(b.draw.choose(_CASTS)), np.dtype(b.draw.choose(_CASTS))
    widens = target.kind == "f" or target.kind == "b" or (source.kind in "iu" and target.itemsize > source.itemsize)
    low = 0.0 if target.kind == "u" else -100.0
    values = "any" if widens and not (source.kind == "f" and target == np.float16) else "tame"
    x = b.input(b.shape(), source, values, **({} if values == "any" else {"low": low, "high": 100.0}))
    b.pointwise = True
    if op == "Cast":
        b.out(b.node(op, x, to=helper_type(target)))
    else:
        b.out(b.node(op, x, b.constant(np.zeros((1,), target))))


def helper_type(dtype: np.dtype) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


@family("BitCast")
def bit_cast(b: Builder, op: str) -> None:
    b.opset = 26
    width = b.draw.choose((4, 8, 2, 1))
    kinds = {
        4: ("float32", "int32", "uint32"),
        8: ("float64", "int64", "uint64"),
        2: ("int16", "uint16"),
        1: ("int8", "uint8"),
    }
    source, target = np.dtype(b.draw.choose(kinds[width])), np.dtype(b.draw.choose(kinds[width]))
    x = b.input(b.shape(), source, "tame")
    b.out(b.node(op, x, to=helper_type(target)))
