"""Operators of one's own, for models whose nodes are of a domain of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from compiler_service.compiler.tensor_expr import registry
from compiler_service.compiler.tensor_expr.operator import Definition

_Own = TypeVar("_Own", bound=Definition)


def register_operator(domain: str, name: str, *, version: str = "") -> Callable[[_Own], _Own]:
    """Nodes ``name`` of ``domain`` mean from now on what the function says that this decorates, in this process::

        @te.register_operator("com.example", "ScaledTanh", version="1")
        def scaled_tanh(x, scale, *, slope=1.0):
            return te.compute(x.shape, lambda *i: te.tanh(x[i] * slope) * scale[i[-1]])

    Its positional parameters are the inputs, in order: tensors, or ``None`` where a node leaves one out and the parameter has a default;
    ``*xs`` takes any number. Keyword-only parameters are the attributes, those without a default required. It gives one tensor, or a
    tuple of as many as there are outputs. It is fused, scheduled and compiled like the operators of the standard.

    Models are then read in this process: an ``onnx.ModelProto``, or with ``in_process=True`` files and bytes.

    Args:
        version: part of what artifacts are known by; it changes wherever the definition does.

    Raises:
        IngotError: INVALID_ARGUMENT, the domain has its operators already, no model could have these names, the version is no text, or
            what is decorated cannot be called with inputs and attributes.
    """

    def register(definition: _Own) -> _Own:
        registry.register_operator(domain, name, definition, version)
        return definition

    return register
