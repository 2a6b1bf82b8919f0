"""Stated limits: what is refused and why, and what an oracle is not asked about."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from shared_ir.errors import ErrorCode, IngotError


@dataclass(frozen=True)
class Limit:
    """What a refusal has in common with others of its reason: a code, a pattern in its text, the operator of the node that it names, an
    oracle that refuses the run too."""

    reason: str
    code: ErrorCode
    text: str = "."
    operator: str = ""
    oracle: str = ""

    def excuses(self, error: IngotError, model: onnx.ModelProto, refusing: Collection[str] = ()) -> bool:
        if self.oracle and self.oracle not in refusing:
            return False
        named = re.search(r"node '([^']*)'", str(error))
        operators = {n.op_type for n in model.graph.node if named and named[1] in (n.name, *n.output)}
        return error.code is self.code and bool(re.search(self.text, str(error))) and self.operator in ("", *operators)


LIMITS = (
    Limit("element type that the operator is not compiled for (docs/operators.md)", ErrorCode.UNSUPPORTED_DTYPE),
    Limit(
        "a calculated size in the vector of a Reshape is 0, and copies no extent (docs/compiler-service.md)",
        ErrorCode.INVALID_ARGUMENT,
        r"what -1 stands for is a size divided by .* received 0\.|; expected 0, received \d+\.",
        "Reshape",
    ),
    Limit(
        "ONNX Runtime knows the shape of a value before the run, and then does not compute it: extents that do not fit are not noticed",
        ErrorCode.INVALID_ARGUMENT,
        r"must be .*; expected (at least )?\d+, received -?\d+\.",
        oracle="onnx.reference",
    ),
    Limit(
        "Squeeze without axes of an extent that is 1 in the run, where outputs do not keep their rank (docs/control-flow.md)",
        ErrorCode.INVALID_ARGUMENT,
        r"must not be 1; expected",
        "Squeeze",
    ),
    Limit(
        "a shape of which the run alone knows how many extents it has (docs/compiler-service.md)",
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        "its elements decide a shape, and nothing says how many there are",
    ),
)


_LEAST_BIAS = 0.1
"""Of LRN: it covers 1e-5 of the squares that are drawn."""


def _takes_halves(model: onnx.ModelProto) -> bool:
    return any(i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for i in model.graph.input)


_UNRELIABLE: dict[str, Mapping[str, Callable[[onnx.NodeProto, onnx.ModelProto], bool]]] = {
    "onnx.reference": {
        "AveragePool": lambda node, _: (
            _is_valid(node) and any(a.name == "dilations" for a in node.attribute)
        ),  # knows none there
        "HardSwish": lambda *_: True,  # takes its sixth in float32, in float64 too
        "LpPool": lambda node, _: any(a.name in ("dilations", "ceil_mode") for a in node.attribute),  # knows neither
        "LRN": lambda *_: True,  # walks as many channels as there are images
        "MaxPool": lambda node, _: any(a.s == b"SAME_LOWER" for a in node.attribute),  # pads behind, too
        "Unique": lambda node, _: _number(node, "sorted", 1) == 0,  # sorts all the same
    },
    "ONNX Runtime": {
        # It adds to the sum of squares what enters the window and takes away what leaves it; what is left of large ones hides small ones.
        "LRN": lambda node, _: _real(node, "bias", 1.0) < _LEAST_BIAS,
        # What is added to the deviation is 0 as a half: it divides by 0 where all elements are equal.
        "MeanVarianceNormalization": lambda _, model: _takes_halves(model),
    },
}
"""Nodes that an oracle is known to compute otherwise than the standard says, by their operator."""


def _is_valid(node: onnx.NodeProto) -> bool:
    return any(a.name == "auto_pad" and a.s == b"VALID" for a in node.attribute)


def _real(node: onnx.NodeProto, name: str, default: float) -> float:
    return next((float(a.f) for a in node.attribute if a.name == name), default)


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


def limit_of(error: IngotError, model: onnx.ModelProto, refusing: Collection[str] = ()) -> str | None:
    """The reason of the limit that this refusal stands for; ``refusing`` are the oracles that refuse the run too."""
    return next((limit.reason for limit in LIMITS if limit.excuses(error, model, refusing)), None)


_UNRELIABLE_VALUES: dict[str, Mapping[str, Callable[[np.ndarray], bool]]] = {
    "onnx.reference": {},
    # Its largest of a window begins with the lowest finite number wherever there are pads, and with -inf elsewhere.
    "ONNX Runtime": {"MaxPool": lambda array: array.dtype.kind == "f" and bool(np.isneginf(array).any())},
}
"""Operators that an oracle is known to compute otherwise than the standard says where an input holds certain elements."""


def unreliable(model: onnx.ModelProto, oracle: str, feeds: Iterable[np.ndarray] = ()) -> bool:
    """Whether what ``oracle`` says of ``model``, or of these inputs, is no vote."""
    known, of_values = _UNRELIABLE[oracle], _UNRELIABLE_VALUES[oracle]
    nodes, arrays = model.graph.node, list(feeds)
    return any(node.op_type in known and known[node.op_type](node, model) for node in nodes) or any(
        node.op_type in of_values and any(map(of_values[node.op_type], arrays)) for node in nodes
    )
