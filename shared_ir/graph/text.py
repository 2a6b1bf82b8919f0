"""The text form of the graph IR, as let-bindings; :func:`parse_module` is the exact inverse of :func:`print_module`.

::

    module {opset=17, input_names=("x",), output_names=("y",)}
    graph main(%x: float32[batch, 3, h, w]) -> (%y) {
      const %w: float32[64, 3, 7, 7] = sha256:9f86d0...
      const %axes: int64[2] = [2, 3]
      %y: float32[batch, 64, h, w] = Conv(%x, %w, _) {dilations=(1, 1), group=1} "conv1"
    }

Grammar::

    module    = "module" attributes default* graph
    default   = "default" value ":" type "=" ("[" elements "]" | sha256:hex)
    graph     = "graph" name "(" [value ":" type, ...] ")" "->" "(" [value, ...] ")" "{" constant* node* "}"
    constant  = "const" value ":" type "=" ("[" elements "]" | sha256:hex)
    node      = results "=" op "(" [value | "_", ...] ")" [attributes] [string]
    results   = (value ":" type | "_"), ...                       "()" when there is none
    attributes = "{" key "=" attribute, ... "}"
    attribute = integer | float | "true" | "false" | string | `dim` | dtype | type | graph | "(" attribute, ... ")"
    value     = %identifier | %string                             strings are JSON strings

A value is known by its name in the rest of the graph and in graphs nested there, but not in the body of an
``ingot.Group``. ``#`` starts a comment.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

from shared_ir.dtype import DType
from shared_ir.expr import Expr
from shared_ir.expr.dim import dim_text
from shared_ir.graph.ir import Attribute, Graph, Module, Node, Value
from shared_ir.graph.literals import array_digest, large_arrays, large_constants, print_array, typed
from shared_ir.graph.parse import parse_graph, parse_graphs, parse_module
from shared_ir.types import TensorType

__all__ = [
    "array_digest",
    "large_arrays",
    "large_constants",
    "parse_graph",
    "parse_graphs",
    "parse_module",
    "print_graph",
    "print_interface",
    "print_module",
    "print_node",
]


def print_module(module: Module) -> str:
    """The module as text; its large constants are found by :func:`large_constants`."""
    return f"{print_interface(module)}{print_graph(module.graph)}"


def print_interface(module: Module) -> str:
    """What stands above the graph of ``module``: a line of attributes, and one for each input that has a default."""
    objects: tuple[Attribute, ...] = tuple((name, o.kind.value, o.dtype) for name, o in module.objects.items())
    metadata: tuple[Attribute, ...] = tuple(sorted(module.metadata.items()))
    optional: dict[str, Attribute] = {
        "input_names": module.input_names,
        "output_names": module.output_names,
        "metadata": metadata,
        "objects": objects,
        "strings": module.strings,
    }
    header: dict[str, Attribute] = {"opset": module.opset} | {k: v for k, v in optional.items() if v}
    defaults = (f"default {_definition(typed(n, a))} = {print_array(a)}\n" for n, a in module.defaults.items())
    return f"module{_attributes(header, 0)}\n{''.join(defaults)}"


def print_graph(graph: Graph) -> str:
    return _graph(graph, 0) + "\n"


def print_node(node: Node, indent: int = 0) -> str:
    """One node without a line end, as it stands in :func:`print_graph`."""
    results = ", ".join("_" if v is None else _definition(v) for v in node.outputs) or "()"
    operands = ", ".join("_" if v is None else _name(v) for v in node.inputs)
    name = f" {json.dumps(node.name)}" if node.name else ""
    return f"{'  ' * indent}{results} = {_symbol(node.op)}({operands}){_attributes(node.attributes, indent)}{name}"


def _graph(graph: Graph, indent: int) -> str:
    inputs = ", ".join(_definition(v) for v in graph.inputs)
    outputs = ", ".join(_name(v) for v in graph.outputs)
    pad = "  " * indent
    lines = [f"graph {_symbol(graph.name)}({inputs}) -> ({outputs}) {{"]
    lines += [f"{pad}  const {_definition(v)} = {print_array(a)}" for v, a in graph.constants.items()]
    lines += [print_node(n, indent + 1) for n in graph.nodes]
    return "\n".join([*lines, f"{pad}}}"])


def _definition(value: Value) -> str:
    return f"{_name(value)}: {value.type}"


def _name(value: Value) -> str:
    return f"%{_symbol(value.name)}"


def _symbol(text: str) -> str:
    """Names of graphs, operators and attributes: dotted identifiers stand as they are."""
    parts = text.split(".")
    plain = all(p.isidentifier() and p.isascii() for p in parts) and parts[0] not in ("_", "inf", "nan")
    return text if plain else json.dumps(text)


def _attributes(attributes: Mapping[str, Attribute], indent: int) -> str:
    if not attributes:
        return ""
    if any(isinstance(a, Graph) for a in attributes.values()):
        pad = "  " * (indent + 1)
        rows = [f"{pad}{_symbol(k)}={_attribute(v, indent + 1)}" for k, v in attributes.items()]
        return " {\n" + ",\n".join(rows) + f"\n{'  ' * indent}}}"
    return " {" + ", ".join(f"{_symbol(k)}={_attribute(v, indent)}" for k, v in attributes.items()) + "}"


def _attribute(value: Attribute, indent: int) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case DType():  # before str: a DType is one
            return value.value
        case int():
            return str(value)
        case float():
            return "nan" if math.isnan(value) else repr(value)
        case str():
            return json.dumps(value)
        case Expr():
            return f"`{dim_text(value)}`"
        case TensorType():
            return str(value)
        case Graph():
            return _graph(value, indent)
        case tuple():
            return _tuple((_attribute(v, indent) for v in value), len(value))
    raise TypeError(f"{value!r} is not an attribute of the graph IR")


def _tuple(items: Iterable[str], count: int) -> str:
    return f"({', '.join(items)}{',' if count == 1 else ''})"
