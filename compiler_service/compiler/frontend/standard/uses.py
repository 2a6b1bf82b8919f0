"""Which attribute of which operator is read: the exceptions of the standard, and the check of every node.

Attributes of the standard that are not named here are read: by the definition of the operator, by its adapter or its handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.frontend.importing.node import AttributeValue, SourceNode
from compiler_service.compiler.frontend.standard.forms import Form, Use
from compiler_service.compiler.frontend.standard.microsoft import MICROSOFT_FORMS, SIMPLIFIED
from shared_ir.errors import ErrorCode, IngotError

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "SimplifiedLayerNormalization": SIMPLIFIED,
        **{f"com.microsoft.{op}": described for op, described in MICROSOFT_FORMS.items()},
    }
)
"""Operators that are imported and that the onnx package does not describe."""


def _hint(why: str) -> Use:
    return Use(hint=why)


_INFERENCE = _hint("what is compiled is inference")
_FREQUENCY = _hint("how often training came by")

STANDARD: Mapping[str, Mapping[str, Use]] = MappingProxyType(
    {
        "BatchNormalization": {"is_test": _INFERENCE},
        "Dropout": {"is_test": _INFERENCE},
        "Gemm": {"broadcast": _hint("without it C has the shape of the result")},
        **{
            op: {"output_sequence": _hint("the outputs of the node say which are asked for")}
            for op in ("RNN", "GRU", "LSTM")
        },
        "Range": {"stash_type": _hint("computed in float32 at least")},
        "TopK": {"sorted": _hint("0 allows any order, and sorted is one")},
        "ai.onnx.ml.LinearClassifier": {"multi_class": _hint("post_transform and the labels say all of it")},
        **{
            f"ai.onnx.ml.TreeEnsemble{kind}": {"nodes_hitrates": _FREQUENCY, "nodes_hitrates_as_tensor": _FREQUENCY}
            for kind in ("Classifier", "Regressor")
        },
        "ai.onnx.ml.TreeEnsemble": {"nodes_hitrates": _FREQUENCY},
    }
)
"""Attributes of operators of the standard that are not simply read."""

EVERYWHERE: Mapping[str, Use] = MappingProxyType({"consumed_inputs": _hint("memory that opsets before 6 reused")})


def uses_of(qualified: str) -> Mapping[str, Use]:
    """What becomes of the attributes of an operator; those that are not named are read."""
    described = FORMS.get(qualified)
    return {**EVERYWHERE, **(described.attributes if described is not None else STANDARD.get(qualified, {}))}


def without_hints(node: SourceNode) -> SourceNode:
    """``node`` with the attributes that are read.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE for a value that is not computed.
    """
    uses = uses_of(node.qualified)
    for name in uses.keys() & node.attributes.keys():
        values = uses[name].values
        if values and node.attributes[name] not in values:
            raise _not_computed(node, name, uses[name], node.attributes[name])
    hints = {name for name, use in uses.items() if use.hint}
    return node.with_(attributes=node.without(*hints)) if hints & node.attributes.keys() else node


def _not_computed(node: SourceNode, name: str, use: Use, received: AttributeValue) -> IngotError:
    return IngotError(
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        f"{node.op} with this {name} is not supported",
        node=str(node),
        field=name,
        expected=", ".join(map(repr, use.values)),
        received=repr(received),
        remedy=use.remedy,
    )
