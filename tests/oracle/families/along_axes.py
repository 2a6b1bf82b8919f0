"""Reductions, scans, normalisations and orders along axes."""

from __future__ import annotations

import numpy as np

from tests.oracle.builder import Axis, Builder, Shape, fixed
from tests.oracle.families.table import drawn_attributes, drawn_opset, drawn_type, family


def drawn_axis(b: Builder, rank: int) -> int:
    return b.draw.integer(0, rank - 1) - (rank if b.draw.rarely(3) else 0)


def drawn_axes(b: Builder, rank: int, least: int = 0) -> list[int]:
    return [a - (rank if b.draw.rarely() else 0) for a in b.draw.some(range(rank), least)]


@family(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def reduce(b: Builder, op: str) -> None:
    drawn_opset(b, *((20,) if op in ("ReduceMax", "ReduceMin") else (21, 18)))
    dtype = drawn_type(b, op)
    if dtype.name == "bfloat16" and op not in ("ReduceMax", "ReduceMin"):
        dtype = np.dtype(
            np.float32
        )  # the only oracle rounds every partial sum to 8 bits: 768 squares are off by a tenth
    if dtype.kind in "iu" and op in ("ReduceLogSum", "ReduceLogSumExp"):
        dtype = np.dtype(np.float32)  # exp and log of integers are nowhere said, and onnx.reference refuses them
    shape = b.shape(least=1 if op == "ReduceMean" and dtype.kind in "iu" else 0)  # of no integers there is no mean
    limits = {"low": 0.125, "high": 2} if op in ("ReduceProd", "ReduceLogSum") else {}
    values = "any" if op in ("ReduceMax", "ReduceMin") else "tame"
    x = b.input(shape, dtype, values, **limits)
    attributes = drawn_attributes(b, op, "axes")
    names = [x] if b.draw.rarely() else [x, b.parameter([drawn_axes(b, len(shape))] * 2)]
    b.out(b.node(op, *names, **attributes), dtype=dtype)


@family("Softmax", "LogSoftmax", "Hardmax")
def softmax(b: Builder, op: str) -> None:
    drawn_opset(b, 21, 13)
    dtype = drawn_type(b, op)
    shape = b.shape(1)
    axis = None if b.draw.flag() else drawn_axis(b, len(shape))
    values = "distinct" if op == "Hardmax" else b.draw.choose(("tame", "any"))
    if op == "LogSoftmax" and dtype.name == "bfloat16":
        values = "tame"  # the only oracle takes the logarithm of a rounded Softmax, which of -94 is 0
    b.out(b.node(op, b.input(shape, dtype, values), axis=axis), dtype=dtype)


@family("CumSum", "CumProd")
def scan(b: Builder, op: str) -> None:
    drawn_opset(b, *((26,) if op == "CumProd" else (21, 14)))
    dtype = drawn_type(b, op)
    shape = b.shape(1)
    x = b.input(shape, dtype, "tame", low=-2, high=2)
    axis = b.parameter([np.array(drawn_axis(b, len(shape)))] * 2, b.draw.choose((np.int64, np.int32)))
    b.out(b.node(op, x, axis, **drawn_attributes(b, op)), dtype=dtype)


@family("ArgMax", "ArgMin")
def position(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op)
    shape = b.shape(1, least=1)
    attributes = drawn_attributes(b, op, "axis")
    if b.draw.flag():
        attributes["axis"] = drawn_axis(b, len(shape))
    b.out(b.node(op, b.input(shape, dtype, b.draw.choose(("tame", "tame", "any"))), **attributes))


@family("TopK")
def top(b: Builder, op: str) -> None:
    """Of distinct elements, sorted: nothing else has one answer."""
    dtype = drawn_type(b, op, among=("float32", "float64", "float16", "int64", "int32"))
    shape = b.shape(1, least=1)
    axis = drawn_axis(b, len(shape))
    along = shape[axis].extents
    count = b.parameter([[b.draw.integer(0, along[0])], [b.draw.integer(0, along[1])]])
    attributes = {"axis": axis, "largest": b.draw.choose((1, 0))}
    names = b.multi(op, [b.input(shape, dtype, "distinct"), count], 2, **attributes)
    b.out(names[0], dtype=dtype)
    b.out(names[1])


@family("LpNormalization", "MeanVarianceNormalization")
def lp_norm(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op)
    shape = b.shape(1) if op == "LpNormalization" else b.shape(4, 4, least=1)
    attributes = drawn_attributes(b, op, "axis", "axes")
    if op == "LpNormalization":
        attributes["axis"] = drawn_axis(b, len(shape))
    elif b.draw.flag():
        attributes["axes"] = b.draw.some(range(len(shape)), 1)
    b.out(b.node(op, b.input(shape, dtype, "tame"), **attributes), dtype=dtype)


@family("LayerNormalization", "RMSNormalization")
def layer_norm(b: Builder, op: str) -> None:
    drawn_opset(b, *((23,) if op == "RMSNormalization" else (21, 17)))
    dtype = drawn_type(b, op, among=("float32", "float64", "float16"))
    shape = b.shape(1, least=1)
    axis = drawn_axis(b, len(shape))
    tail = shape[axis % len(shape) :]
    names = [b.input(shape, dtype, "tame"), b.either(tail, dtype, "tame")]
    if op == "LayerNormalization" and b.draw.flag():
        names.append(b.either(tail, dtype, "tame"))
    b.out(b.node(op, *names, axis=axis, **drawn_attributes(b, op, "axis", "stash_type")), dtype=dtype)


def _channels(shape: Shape) -> Shape:
    return (shape[1],)


@family("BatchNormalization", "InstanceNormalization", "GroupNormalization")
def channel_norm(b: Builder, op: str) -> None:
    drawn_opset(b, *((22, 21) if op != "BatchNormalization" else (21, 15)))
    dtype = drawn_type(b, op, among=("float32", "float64", "float16"))
    groups = b.draw.choose((1, 2, 4))
    rank = b.draw.integer(2, 5) if op == "BatchNormalization" else b.draw.integer(3, 5)
    channels = Axis(None, (4, 4)) if op == "GroupNormalization" else b.axis(1, 8)
    shape = (b.axis(0, 4), channels, *(b.axis(1, 5) for _ in range(rank - 2)))
    x = b.input(shape, dtype, "tame")
    names = [b.either(_channels(shape), dtype, "tame") for _ in range(2)]
    attributes = drawn_attributes(b, op, "training_mode", "momentum", "stash_type")
    if op == "BatchNormalization":
        names += [b.either(_channels(shape), dtype, "tame"), b.either(_channels(shape), dtype, "tame", low=0.5, high=4)]
    if op == "GroupNormalization":
        attributes["num_groups"] = groups
    b.out(b.node(op, x, *names, **attributes), dtype=dtype)


@family("LRN")
def local_norm(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=("float32", "float64"))
    shape = (b.axis(1, 4), b.axis(1, 8), *(b.axis(1, 5) for _ in range(b.draw.integer(1, 3))))
    size = b.draw.choose((3, 1, 5, 2, 4))
    b.out(b.node(op, b.input(shape, dtype, "tame"), size=size, **drawn_attributes(b, op, "size")), dtype=dtype)


@family("Dropout")
def dropout(b: Builder, op: str) -> None:
    """As inference computes it: nothing is dropped."""
    shape = b.shape()
    names = b.multi(op, [b.input(shape)], b.draw.choose((1, 2)))
    b.out(*names)


@family("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(b: Builder, op: str) -> None:
    dtype = drawn_type(b, op, among=("float32", "float64"))
    classes = b.draw.integer(1, 5)
    rest = (b.axis(1, 5), *(b.axis(1, 4) for _ in range(b.draw.integer(0, 2))))
    x = b.input((rest[0], *fixed(classes), *rest[1:]), dtype, "tame")
    ignored = b.draw.choose((None, -1, 0))
    low = -1 if ignored == -1 else 0
    target = b.input(rest, b.draw.choose((np.int64, np.int32)), "tame", low=low, high=classes - 1)
    names = [x, target]
    if b.draw.flag():
        names.append(b.either(fixed(classes), dtype, "tame", low=0.5, high=2))
    reduction = b.draw.choose((None, "none", "sum", "mean"))
    outputs = 2 if op == "SoftmaxCrossEntropyLoss" and b.draw.flag() else 1
    b.out(*b.multi(op, names, outputs, reduction=reduction, ignore_index=ignored))
