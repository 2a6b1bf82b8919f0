"""The table of families: operator -> function that draws a model of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import defs, helper

from tests.oracle.builder import Builder, Family

FAMILIES: dict[str, Family] = {}

_FLOATS = ("float32", "float64", "float16")
_WEIGHTS = {"float32": 5, "float64": 2, "float16": 1, "bfloat16": 1, "int64": 2, "int32": 2}


def family(*operators: str) -> Callable[[Family], Family]:
    """Enter a function for these operators."""

    def enter(draws: Family) -> Family:
        FAMILIES.update(dict.fromkeys(operators, draws))
        return draws

    return enter


def element_types(op: str, opset: int, index: int = 0) -> list[Any]:
    """Types that the schema allows for an input, as numpy's; the usual ones several times."""
    schema = defs.get_schema(op, opset)
    found = []
    for text in sorted(schema.inputs[index].types):
        name = text.removeprefix("tensor(").removesuffix(")")
        name = {"float": "float32", "double": "float64"}.get(name, name)
        if name == "bfloat16":
            found.append(np.dtype(ml_dtypes.bfloat16))
        elif name == "bool" or name in (*_FLOATS, *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))):
            found += [np.dtype(name)] * _WEIGHTS.get(name, 1)
    return sorted(found, key=lambda d: (d != np.float32, d.name))


def drawn_type(b: Builder, op: str, index: int = 0, among: Sequence[Any] | None = None) -> Any:
    options = [d for d in element_types(op, b.opset, index) if among is None or d in [np.dtype(a) for a in among]]
    return b.draw.choose(options)


def drawn_opset(b: Builder, *options: int) -> None:
    b.opset = b.draw.choose(options)


_FLOAT_VALUES = (0.5, 1.0, 0.0, 2.0, -1.0, 0.01, 1.6732)
_DOMAINS: dict[tuple[str, str], Sequence[Any]] = {
    ("Gelu", "approximate"): ("none", "tanh"),
    ("Celu", "alpha"): (1.0, 0.5, 2.0),
    ("IsInf", "detect_negative"): (0, 1),
    ("IsInf", "detect_positive"): (0, 1),
    ("Shrink", "lambd"): (0.5, 0.0, 1.5),
    ("LpNormalization", "p"): (1, 2),
    ("ReduceMax", "noop_with_empty_axes"): (0, 1),
}
"""What an attribute may be, where its type does not tell."""


def drawn_attributes(b: Builder, op: str, *skip: str) -> dict[str, Any]:
    """Every optional attribute of the schema left out or drawn, but for those to ``skip``."""
    found: dict[str, Any] = {}
    for name, attribute in sorted(defs.get_schema(op, b.opset).attributes.items()):
        if name in skip or b.draw.flag():
            continue
        default = helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
        domain = _DOMAINS.get((op, name))
        if domain is not None:
            found[name] = b.draw.choose(domain)
        elif attribute.type == defs.OpSchema.AttrType.FLOAT:
            found[name] = b.draw.choose((default if default is not None else 1.0, *_FLOAT_VALUES))
        elif attribute.type == defs.OpSchema.AttrType.INT and default in (0, 1):
            found[name] = b.draw.choose((0, 1))
    return found
