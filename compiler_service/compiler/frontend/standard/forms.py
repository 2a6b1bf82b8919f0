"""What becomes of each attribute of an operator, and the forms of operators that the onnx package does not describe.

An attribute is *read* (it changes what is computed, or is proven to have nothing to change), a *hint* (to an engine or to
training; it never changes a result), or *limited* to the values that are computed, every other one being refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx.defs

from compiler_service.compiler.frontend.importing.node import AttributeValue

Schema = Any
"""onnx.defs.OpSchema, which has no type stubs."""


@dataclass(frozen=True)
class Use:
    """What becomes of one attribute.

    Attributes:
        kind: name of an AttrType of onnx: ``INT``, ``FLOATS``.
        default: ``None`` where there is none.
        values: the only values that are computed; empty where all are.
        hint: why the attribute changes nothing; empty where it is read.
        remedy: what to do about another value than ``values``.
    """

    kind: str = ""
    default: AttributeValue = None
    is_required: bool = False
    values: tuple[AttributeValue, ...] = ()
    hint: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Form:
    """The signature of an operator: names of inputs and outputs (``x?`` may be absent, ``x*`` any number) and attributes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Use] = field(default_factory=dict)


def form(inputs: str, outputs: str, **attributes: Use) -> Form:
    """A form of names that are separated by blanks."""
    return Form(tuple(inputs.split()), tuple(outputs.split()), attributes)


def required(kind: str) -> Use:
    return Use(kind, is_required=True)


def read(kind: str, default: AttributeValue = None) -> Use:
    return Use(kind, default)


def hint(kind: str, default: AttributeValue, why: str) -> Use:
    return Use(kind, default, hint=why)


def only(kind: str, default: AttributeValue, values: tuple[AttributeValue, ...], remedy: str) -> Use:
    return Use(kind, default, values=values, remedy=remedy)


def schema_of_form(op: str, domain: str, described: Form) -> Schema:
    """``described`` as the onnx package holds the schemas of its own operators."""
    return onnx.defs.OpSchema(
        op,
        domain,
        1,
        inputs=[_parameter(name) for name in described.inputs],
        outputs=[_parameter(name) for name in described.outputs],
        type_constraints=[("T", ["tensor(float)"], "not looked at")],
        attributes=[_attribute(name, use) for name, use in described.attributes.items()],
    )


def _parameter(name: str) -> Any:
    options = onnx.defs.OpSchema.FormalParameterOption
    option = {"?": options.Optional, "*": options.Variadic}.get(name[-1], options.Single)
    return onnx.defs.OpSchema.FormalParameter(name.rstrip("?*"), "T", param_option=option, is_homogeneous=False)


def _attribute(name: str, use: Use) -> Any:
    if use.default is not None:
        return onnx.defs.OpSchema.Attribute(name, onnx.helper.make_attribute(name, use.default))
    kind = getattr(onnx.defs.OpSchema.AttrType, use.kind)
    return onnx.defs.OpSchema.Attribute(name, kind, required=use.is_required)
