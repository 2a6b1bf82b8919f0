"""Reader of the text form of the graph IR (grammar in :mod:`shared_ir.graph.text`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr.dim import Dim, parse_dim
from shared_ir.graph.ir import GROUP_OP, Attribute, Graph, Module, Node, Value
from shared_ir.graph.literals import literal_array, stored_array
from shared_ir.types import ObjectType, TensorType, ValueKind

T = TypeVar("T")

_SPACE = re.compile(r"(?:\s++|#[^\n]*+)*+")
_TOKEN = re.compile(
    r"""(?P<digest>sha256:[0-9a-f]{64})
    | (?P<float>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|inf\b|nan\b))
    | (?P<int>-?\d+)
    | (?P<word>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<dim>`[^`]*`)
    | (?P<sign>->|[%:=(){}\[\],])
    """,
    re.VERBOSE | re.ASCII,
)
_NOTHING: Mapping[str, np.ndarray] = {}
_HEADER = frozenset({"opset", "input_names", "output_names", "metadata", "objects", "strings"})
_MAX_NESTING = 64
_BEYOND = 1 << 64
_MOST_CHARACTERS_OF_INTEGER = len(str(_BEYOND))


def parse_module(text: str, constants: Mapping[str, np.ndarray] = _NOTHING) -> Module:
    """The module that :func:`shared_ir.graph.text.print_module` printed.

    Args:
        constants: digest -> array, for the arrays that the text names by digest.

    Raises:
        IngotError: INVALID_ARGUMENT with line and column.
    """
    module, graphs, end = parse_graphs(text, constants)
    if len(graphs) != 1 or end != len(text):
        raise _Parser(text, constants).error("one graph", end, f"the module has {len(graphs)} graphs")
    return replace(module, graph=graphs[0])


def parse_graphs(text: str, constants: Mapping[str, np.ndarray] = _NOTHING) -> tuple[Module, tuple[Graph, ...], int]:
    """What ``text`` says of a model, as a module without its graph; the graphs in it; and where what is no graph begins.

    Raises:
        IngotError: as :func:`parse_module`.
    """
    parser = _Parser(text, constants)
    parser.word("module")
    start = parser.position
    header = parser.attributes()
    if not header.keys() <= _HEADER:
        raise parser.error(f"one of {', '.join(sorted(_HEADER))}", start)
    parser.scopes.append({})
    defaults = {v.name: a for v, a in iter(parser.default, None)}
    parser.scopes.pop()
    graphs: list[Graph] = []
    while parser.peek() == ("word", "graph"):
        graphs.append(parser.graph())
    try:
        return _interface(header, defaults), tuple(graphs), parser.position
    except (TypeError, ValueError) as error:
        raise parser.error("an integer opset, tuples of names, metadata as pairs of strings", start) from error


def _interface(header: Mapping[str, Any], defaults: Mapping[str, np.ndarray]) -> Module:
    """Raises TypeError or ValueError: a part of the header is of another kind."""
    objects = {str(name): ObjectType(ValueKind(kind), DType(dtype)) for name, kind, dtype in header.get("objects", ())}
    return Module(
        Graph("", (), (), ()),
        opset=int(str(header.get("opset", 0))),
        metadata=dict(header.get("metadata", ())),
        input_names=tuple(header.get("input_names", ())),
        output_names=tuple(header.get("output_names", ())),
        objects=objects,
        strings=tuple(header.get("strings", ())),
        defaults=defaults,
    )


def parse_graph(text: str, constants: Mapping[str, np.ndarray] = _NOTHING) -> Graph:
    """The graph that :func:`shared_ir.graph.text.print_graph` printed; see :func:`parse_module`."""
    parser = _Parser(text, constants)
    graph = parser.graph()
    parser.end()
    return graph


class _Parser:
    def __init__(self, text: str, constants: Mapping[str, np.ndarray]) -> None:
        self.text = text
        self.constants = constants
        self.position = 0
        self.scopes: list[dict[str, Value]] = []
        self.depth = 0
        self.dims: dict[str, Dim] = {}
        self.skip()

    # -- tokens

    def skip(self) -> None:
        found = _SPACE.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def error(self, expected: str, position: int | None = None, message: str = "") -> IngotError:
        at = self.position if position is None else position
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        found = self.text[at : at + 24].split("\n")[0]
        return IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"line {line}, column {column}: {message or 'the graph text does not parse'}",
            expected=expected,
            received=repr(found) if found else "end of text",
        )

    def peek(self) -> tuple[str, str]:
        """Kind and text of the next token; ``("", "")`` where none starts."""
        found = _TOKEN.match(self.text, self.position)
        return (found.lastgroup or "", found.group()) if found else ("", "")

    def take(self, kind: str, expected: str) -> str:
        found, text = self.peek()
        if found != kind:
            raise self.error(expected)
        self.position += len(text)
        self.skip()
        return text

    def accept(self, sign: str) -> bool:
        if self.peek() != ("sign", sign):
            return False
        self.take("sign", sign)
        return True

    def sign(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.error(repr(sign))

    def word(self, word: str) -> None:
        if self.peek() != ("word", word):
            raise self.error(repr(word))
        self.take("word", word)

    def end(self) -> None:
        if self.position != len(self.text):
            raise self.error("end of text")

    def several(self, item: Callable[[], T], close: str) -> list[T]:
        """``item, item, ...`` up to and including ``close``; a trailing comma is allowed."""
        items: list[T] = []
        while not self.accept(close):
            items.append(item())
            if not self.accept(","):
                self.sign(close)
                break
        return items

    # -- names and types

    def symbol(self, what: str) -> str:
        if self.peek()[0] == "string":
            return self.string()
        return self.take("word", what)

    def string(self) -> str:
        start = self.position
        try:
            return str(json.loads(self.take("string", "a string")))
        except ValueError as error:
            raise self.error("a JSON string", start) from error

    def value_name(self) -> str:
        self.sign("%")
        return self.symbol("the name of a value")

    def type(self) -> TensorType:
        start = self.position
        dtype = self.dtype(self.take("word", "an element type"), start)
        if self.peek() != ("sign", "["):
            raise self.error("'['")
        return TensorType(dtype, self.dims_in_brackets())

    def dtype(self, name: str, position: int) -> DType:
        try:
            return DType(name)
        except ValueError as error:
            raise self.error("an element type", position) from error

    def dims_in_brackets(self) -> tuple[Dim, ...]:
        close = self.text.find("]", self.position)
        if close < 0:
            raise self.error("']'", len(self.text))
        start = self.position + 1
        dims: list[Dim] = []
        depth = 0
        for at in range(start, close + 1):
            character = self.text[at]
            depth += (character == "(") - (character == ")")
            if (character == "," and depth == 0) or at == close:
                if self.text[start:close].strip():
                    dims.append(self.dim(self.text[start:at], start))
                start = at + 1
        self.position = close + 1
        self.skip()
        return tuple(dims)

    def dim(self, text: str, position: int) -> Dim:
        found = self.dims.get(text)
        if found is None:
            try:
                found = self.dims[text] = parse_dim(text.strip())
            except ValueError as error:
                raise self.error("a dim: an integer expression over symbols", position) from error
        return found

    # -- graphs

    def define(self) -> Value:
        start = self.position
        name = self.value_name()
        self.sign(":")
        value = Value(name, self.type())
        if any(name in scope for scope in self.scopes):
            raise self.error("a new name", start, f"%{name} is defined twice")
        self.scopes[-1][name] = value
        return value

    def reference(self) -> Value:
        start = self.position
        name = self.value_name()
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise self.error("a value that is defined above", start, f"%{name} is not defined")

    def optional_reference(self) -> Value | None:
        return None if self.absent() else self.reference()

    def absent(self) -> bool:
        if self.peek() != ("word", "_"):
            return False
        self.take("word", "_")
        return True

    def graph(self) -> Graph:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise self.error(f"at most {_MAX_NESTING} nested graphs")
        self.word("graph")
        name = self.symbol("the name of the graph")
        self.scopes.append({})
        self.sign("(")
        inputs = self.several(self.define, ")")
        self.sign("->")
        outputs_at = self.position
        self.sign("(")
        self.several(self.value_name, ")")  # outputs are defined further down: read them again at the end
        self.sign("{")
        constants = dict(self.constant() for _ in iter(lambda: self.peek() == ("word", "const"), False))
        nodes = []
        while not self.accept("}"):
            nodes.append(self.node())
        after, self.position = self.position, outputs_at
        self.sign("(")
        outputs = self.several(self.reference, ")")
        self.position = after
        self.scopes.pop()
        self.depth -= 1
        return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), constants)

    def default(self) -> tuple[Value, np.ndarray] | None:
        """The next default of an input, if one stands here."""
        return self.constant("default") if self.peek() == ("word", "default") else None

    def constant(self, word: str = "const") -> tuple[Value, np.ndarray]:
        self.word(word)
        value = self.define()
        self.sign("=")
        start = self.position
        kind, text = self.peek()
        try:
            if kind == "digest":
                self.take("digest", "a digest")
                return value, stored_array(text, value.type, self.constants)
            self.sign("[")
            return value, literal_array(self.several(self.element, "]"), value.type)
        except ValueError as error:
            raise self.error(f"an array of type {value.type}", start, str(error)) from error

    def element(self) -> object:
        element = self.attribute()
        if not isinstance(element, bool | int | float | str):
            raise self.error("a number, true, false or a string")
        return element

    def node(self) -> Node:
        if self.peek() not in (("sign", "%"), ("sign", "("), ("word", "_")):
            raise self.error("a node or '}'")
        outputs: list[Value | None] = []
        if self.accept("("):
            self.sign(")")
            self.sign("=")
        else:
            # NOTE: results enter the scope only after the operands were read, so that a node cannot read itself.
            self.scopes.append({})
            outputs = self.several(lambda: None if self.absent() else self.define(), "=")
            results = self.scopes.pop()
        op = self.symbol("the name of an operator")
        self.sign("(")
        inputs = self.several(self.optional_reference, ")")
        attributes = self.node_attributes(op)
        name = self.string() if self.peek()[0] == "string" else ""
        if outputs:
            self.scopes[-1].update(results)
        return Node(op, tuple(inputs), tuple(outputs), attributes, name)

    def node_attributes(self, op: str) -> dict[str, Attribute]:
        if self.peek() != ("sign", "{"):
            return {}
        outside = self.scopes
        self.scopes = [] if op == GROUP_OP else outside
        attributes = self.attributes()
        self.scopes = outside
        return attributes

    def attributes(self) -> dict[str, Attribute]:
        self.sign("{")
        return dict(self.several(self.named_attribute, "}"))

    def named_attribute(self) -> tuple[str, Attribute]:
        key = self.symbol("the name of an attribute")
        self.sign("=")
        return key, self.attribute()

    def attribute(self) -> Attribute:
        kind, text = self.peek()
        match kind, text:
            case "int", _:
                return self.integer()
            case "float", _:
                return float(self.take("float", "a number"))
            case "string", _:
                return self.string()
            case "dim", _:
                start = self.position
                return self.dim(self.take("dim", "a dim")[1:-1], start)
            case "sign", "(":
                self.sign("(")
                return tuple(self.several(self.attribute, ")"))
            case "word", "graph":
                return self.graph()
            case "word", ("true" | "false"):
                return self.take("word", "true or false") == "true"
            case "word", _:
                return self.dtype_or_type()
        raise self.error("an attribute value")

    def integer(self) -> int:
        start = self.position
        text = self.take("int", "an integer")
        number = int(text) if len(text) <= _MOST_CHARACTERS_OF_INTEGER else _BEYOND
        if not -_BEYOND // 2 <= number < _BEYOND:
            raise self.error("an integer of 64 bits", start)
        return number

    def dtype_or_type(self) -> DType | TensorType:
        start = self.position
        dtype = self.dtype(self.take("word", "an element type"), start)
        if self.peek() == ("sign", "["):
            return TensorType(dtype, self.dims_in_brackets())
        return dtype
