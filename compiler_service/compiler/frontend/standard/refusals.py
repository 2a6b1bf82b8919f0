"""Errors of nodes that cannot be imported."""

from __future__ import annotations

from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.standard.functions import (
    has_definition,
)
from shared_ir.errors import ErrorCode, IngotError


def no_opset(node: SourceNode) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_MODEL,
        "the model imports no opset for the domain of a node",
        expected=f"an opset_import for domain {node.domain or 'ai.onnx'!r}",
        received="none",
        remedy="Export the model again.",
    )


def unsupported(node: SourceNode) -> IngotError:
    if node.domain:
        return IngotError(
            ErrorCode.UNSUPPORTED_DOMAIN,
            f"the operator {node.op} of the domain {node.domain} is not part of ONNX",
            expected="operators of ai.onnx, or functions defined in the model",
            received=node.qualified,
            remedy="Export without custom or vendor operators, or put their definition into the model as a function. In Python, "
            "ingot.te.register_operator defines one for models that are read with in_process=True.",
        )
    if has_definition(node):
        return IngotError(
            ErrorCode.UNSUPPORTED_OPERATOR,
            f"the standard defines {node.op} by other operators, but not for inputs as these",
            expected="inputs of declared extents, of types that the definition takes",
            received="an extent that only the run knows, or another type",
            remedy="Declare the extents of the inputs of the model, or compile it for given shapes.",
        )
    return IngotError(
        ErrorCode.UNSUPPORTED_OPERATOR,
        f"the operator {node.op} is not supported",
        remedy="Rewrite this part of the model with supported operators.",
    )


def no_tensor(node: SourceNode, name: str) -> IngotError:
    return IngotError(
        ErrorCode.UNSUPPORTED_DTYPE,
        f"{node.op} takes tensors of known rank",
        tensor=name,
        expected="a tensor",
        received="a sequence, an optional, or a tensor whose number of axes only the run knows",
        remedy="Declare the shapes of the tensors in sequences and optionals, with names for extents that are not known.",
    )


def unsupported_output(node: SourceNode, index: int) -> IngotError:
    return IngotError(
        ErrorCode.UNSUPPORTED_ATTRIBUTE,
        f"output {index} of {node.op} is not supported",
        tensor=node.outputs[index],
        expected=f"outputs 0 to {index - 1} alone",
        received=f"a use of output {index}",
        remedy="Export the model in inference mode, or without this output.",
    )
