"""An operator: a name and a Python function whose signature is the ONNX signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from compiler_service.compiler.tensor_expr.refusal import mismatch, unsupported_attribute
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.graph.ir import Attribute

Inputs: TypeAlias = tuple[Tensor | None, ...]
Definition: TypeAlias = Callable[..., Tensor | tuple[Tensor | None, ...]]

_REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Operator:
    """An operator of the inventory.

    ``definition`` takes the inputs as positional parameters (``None``, or a default, where ONNX allows an input to be
    absent; ``*xs`` where it is variadic) and the attributes as keyword-only parameters with the defaults of the ONNX
    schema. It returns its output, or all of its outputs as a tuple.
    """

    name: str
    definition: Definition

    def define(self, inputs: Sequence[Tensor | None], attributes: Mapping[str, Attribute]) -> Inputs:
        """The outputs for these inputs.

        Raises:
            IngotError: TYPE_MISMATCH for wrong inputs, UNSUPPORTED_ATTRIBUTE for unknown or missing attributes.
        """
        self._check_inputs(inputs)
        self._check_attributes(attributes)
        result = self.definition(*inputs, **attributes)
        return result if isinstance(result, tuple) else (result,)

    @cached_property
    def _parameters(self) -> tuple[inspect.Parameter, ...]:
        return tuple(inspect.signature(self.definition).parameters.values())

    def _check_inputs(self, inputs: Sequence[Tensor | None]) -> None:
        named = [p for p in self._parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        variadic = any(p.kind is p.VAR_POSITIONAL for p in self._parameters)
        required = sum(p.default is _REQUIRED for p in named) + variadic
        if len(inputs) < required or (len(inputs) > len(named) and not variadic):
            most = "any number of" if variadic else str(len(named))
            raise mismatch(f"{self.name} has a wrong number of inputs", f"{required} to {most}", str(len(inputs)))
        for parameter, value in zip(named, inputs, strict=False):
            if value is None and parameter.default is _REQUIRED:
                raise mismatch(f"{self.name} lacks its input {parameter.name}", "a tensor", "nothing")

    def _check_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        known = {p.name: p for p in self._parameters if p.kind is p.KEYWORD_ONLY}
        for name, value in attributes.items():
            if name not in known:
                raise unsupported_attribute(name, f"one of {', '.join(known) or 'none'}", str(value))
        for name, parameter in known.items():
            if parameter.default is _REQUIRED and name not in attributes:
                raise unsupported_attribute(name, "a value (it is required)", "nothing")
