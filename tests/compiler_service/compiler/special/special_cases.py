"""Every elementwise operator on special values: zeros, limits, subnormals, infinities, NaN, halves, large arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import compile_model
from runtime_service.loading.loader import load_model

Array = NDArray[Any]

ONNX_TYPES: dict[Any, int] = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
    np.int8: TensorProto.INT8,
    np.int16: TensorProto.INT16,
    np.int32: TensorProto.INT32,
    np.int64: TensorProto.INT64,
    np.uint8: TensorProto.UINT8,
    np.uint16: TensorProto.UINT16,
    np.uint32: TensorProto.UINT32,
    np.uint64: TensorProto.UINT64,
    np.bool_: TensorProto.BOOL,
}

ELEMENTARY = frozenset(
    [
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Gelu",
        "Log",
        "Mish",
        "Pow",
        "Selu",
        "Sigmoid",
        "Sin",
        "Sinh",
        "Softplus",
        "Swish",
        "Tan",
        "Tanh",
    ]
)
"""Where folding rounds once and kernels are off by a few units; all others give the same bits."""

_FLOAT_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
]
_INTEGER_UNARY = ("Abs", "BitwiseNot", "Identity", "Neg", "Relu", "Sign")
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", *_COMPARISONS)
_PREDICATES = frozenset({"IsInf", "IsNaN", *_COMPARISONS})


@dataclass(frozen=True, eq=False)
class Case:
    op: str
    operands: tuple[Array, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    result: int = 0
    """The element type of the result; that of the first operand by default."""

    @property
    def output_type(self) -> int:
        return self.result or (
            TensorProto.BOOL if self.op in _PREDICATES else type_of(self.operands[int(self.op == "Where")])
        )


def type_of(array: Array) -> int:
    return ONNX_TYPES[array.dtype.type]


def is_integer(kind: Any) -> bool:
    return np.issubdtype(kind, np.integer)


def values(kind: Any) -> Array:
    """An odd number of them, so that some are reached by what follows the last vector."""
    if is_integer(kind):
        ends = np.iinfo(kind)
        negative = [-1, -2, -3, -7] if ends.min < 0 else [8, 9, 15, 16]
        return np.array(
            [0, 1, 2, 3, 5, 7, ends.max, ends.max - 1, ends.min, ends.min + 1, ends.max // 2, *negative], kind
        )
    info = ml_dtypes.finfo(kind)
    largest, tiny, least, epsilon = (
        float(v) for v in (info.max, info.smallest_normal, info.smallest_subnormal, info.eps)
    )
    size = [
        0,
        1,
        0.5,
        1.5,
        2.5,
        3,
        np.inf,
        largest,
        tiny,
        tiny / 2,
        least,
        10,
        88.5,
        100,
        745.2,
        20,
        1e4,
        65504,
        2**23 + 0.5,
    ]
    single = [np.nan, 0.1, 88.8, -104, 709.9, 2**24 + 1, 1e10, 1e22, -1e30, epsilon, 0.9999, 1 + epsilon, -1 + epsilon]
    with np.errstate(all="ignore"):
        return np.array([*size, *(-v for v in np.array(size, float)), *single]).astype(kind)


def cases(kind: Any) -> list[Case]:
    x = values(kind)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    whole = is_integer(kind)
    signed = not whole or np.iinfo(kind).min < 0
    unary = [op for op in (_INTEGER_UNARY if whole else _FLOAT_UNARY) if signed or op not in ("Neg", "Relu")]
    found = [Case(op, (x,)) for op in unary]
    divided = (a[b != 0], b[b != 0]) if whole else (a, b)
    for op in (*_ARITHMETIC, *(("BitwiseAnd", "BitwiseOr", "BitwiseXor") if whole else ("PRelu",))):
        found.append(Case(op, divided if op == "Div" else (a, b)))
    found += [Case("Mod", divided, {"fmod": fmod}) for fmod in ((0, 1) if whole else (1,))]
    low, high = (np.array(v).astype(kind) for v in ((-2 if signed else 1), 5))
    found += [Case("Clip", (x, low, high)), Case("Where", (np.arange(len(x)) % 2 == 0, x, x[::-1].copy()))]
    found += [Case("Cast", (x,), {"to": to}, to) for k, to in ONNX_TYPES.items() if k is not kind]
    return found


def model(cases: Sequence[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Every case twice, on inputs (result ``run0``, ``run1``, ...) and on constants (``folded0``, ...); and the inputs."""
    nodes, inputs, constants, outputs, feeds = [], [], [], [], {}
    for number, case in enumerate(cases):
        for way in ("run", "folded"):
            names = [f"{way}{number}_{i}" for i in range(len(case.operands))]
            for name, array in zip(names, case.operands, strict=True):
                if way == "run" and array.ndim:
                    inputs.append(helper.make_tensor_value_info(name, type_of(array), array.shape))
                    feeds[name] = array
                else:
                    constants.append(helper.make_tensor(name, type_of(array), array.shape, array.tobytes(), raw=True))
            nodes.append(helper.make_node(case.op, names, [f"{way}{number}"], **case.attributes))
            outputs.append(helper.make_tensor_value_info(f"{way}{number}", case.output_type, None))
    graph = helper.make_graph(nodes, "special", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), feeds


def results(cases: Sequence[Case], opt_level: int, *, denormals: bool = False) -> dict[str, Array]:
    proto, feeds = model(cases)
    options = CompileOptions(opt_level=opt_level, denormals=denormals)
    artifact = compile_model(ModelSource.of(proto.SerializeToString()), host_target(), options, workers=0)
    with load_model(artifact, threads=1) as loaded:
        return dict(loaded.run(feeds))


def units(a: Array, b: Array) -> Array:
    """How many numbers of their type lie between ``a`` and ``b``; signs of zeros and NaN count, bits of NaN do not."""
    if a.dtype == bool or is_integer(a.dtype.type):
        return np.where(a == b, 0.0, np.inf)
    assert a.dtype == b.dtype
    width = f"i{a.dtype.itemsize}"
    sign = float(2 ** (8 * a.dtype.itemsize - 1))
    x, y = (v.view(width).astype(np.float64) for v in (a, b))
    x, y = (np.where(v < 0, -sign - v - 0.5, v) for v in (x, y))
    distance = np.abs(x - y)
    both, either = np.isnan(a) & np.isnan(b), np.isnan(a) | np.isnan(b)
    return np.where(both, 0, np.where(either, np.inf, distance))
