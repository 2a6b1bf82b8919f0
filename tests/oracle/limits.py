"""Stated limits: what is refused and why, and what an oracle is not asked about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import onnx

from shared_ir.errors import ErrorCode, IngotError

LIMITS: tuple[tuple[ErrorCode, str, str], ...] = (
    (ErrorCode.UNSUPPORTED_DTYPE, r".", "element type that the operator is not compiled for (docs/operators.md)"),
)
"""Code, a pattern that the message has, and the limit in words."""


def _takes_halves(model: onnx.ModelProto) -> bool:
    return any(i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for i in model.graph.input)


_UNRELIABLE: dict[str, Mapping[str, Callable[[onnx.NodeProto, onnx.ModelProto], bool]]] = {
    "onnx.reference": {
        "HardSwish": lambda *_: True,  # takes its sixth in float32, in float64 too
        "LpPool": lambda node, _: any(a.name == "dilations" for a in node.attribute),  # knows none
        "LRN": lambda *_: True,  # walks as many channels as there are images
        "MaxPool": lambda node, _: any(a.s == b"SAME_LOWER" for a in node.attribute),  # pads behind, too
        "Unique": lambda node, _: _number(node, "sorted", 1) == 0,  # sorts all the same
    },
    "ONNX Runtime": {
        # What is added to the deviation is 0 as a half: it divides by 0 where all elements are equal.
        "MeanVarianceNormalization": lambda _, model: _takes_halves(model),
    },
}
"""Nodes that an oracle is known to compute otherwise than the standard says, by their operator."""


def _number(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


_LOOSER = {
    "Erf": (1e-6, "the reference's is an approximation, in float64 too"),
    "Gelu": (1e-4, "the reference's error function is an approximation, in float64 too"),
    "GroupNormalization": (1e-4, "computes in float32 inside, as its stash_type says"),
    "RMSNormalization": (1e-4, "computes in float32 inside, as its stash_type says"),
    "LayerNormalization": (1e-4, "computes in float32 inside, as its stash_type says"),
}


def looser(model: onnx.ModelProto) -> float:
    """The tolerance that the operators of a model need beyond that of their types."""
    return max((_LOOSER[n.op_type][0] for n in model.graph.node if n.op_type in _LOOSER), default=0.0)


def limit_of(error: IngotError) -> str | None:
    """The limit that this refusal stands for."""
    return next((why for code, form, why in LIMITS if error.code is code and re.search(form, str(error))), None)


def unreliable(model: onnx.ModelProto, oracle: str) -> bool:
    known = _UNRELIABLE[oracle]
    return any(node.op_type in known and known[node.op_type](node, model) for node in model.graph.node)
