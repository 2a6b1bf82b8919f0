"""Random well-formed graphs: any dtype, any attribute, nested bodies, names that are no identifiers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shared_ir.dtype import DType
from shared_ir.expr.dim import as_dim
from shared_ir.graph.ir import GROUP_OP, Attribute, Graph, Module, Node, Value
from shared_ir.types import ObjectType, TensorType, ValueKind
from tests.shared_ir.expr.expressions import dim_expressions

_NUMPY_TYPES = [
    t for t in DType if (t.is_integer and t.bits >= 8) or t.value in ("bool", "float16", "float32", "float64")
]
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_words = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
_names = st.one_of(
    _words, st.sampled_from(["_", "inf", "nan", "graph", "const", "true", "float32", "a.b", "x/y:0", '"', "é"])
)
_dims = st.one_of(st.integers(0, 4), dim_expressions(4).map(as_dim).filter(lambda d: not isinstance(d, int) or d >= 0))
_types = st.builds(TensorType, st.sampled_from(DType), st.lists(_dims, max_size=3).map(tuple))


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Small arrays, and some too large for a literal."""
    dtype = draw(st.sampled_from(_NUMPY_TYPES))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = math.prod(shape)
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype is DType.BOOL:
        return (np.frombuffer(data, np.uint8) & 1).astype(bool).reshape(shape)
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def strings() -> st.SearchStrategy[np.ndarray]:
    return st.lists(_texts, max_size=20).map(lambda texts: np.array(texts, dtype=object))


_plain_attributes: st.SearchStrategy[Attribute] = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.booleans(),
        _texts,
        st.sampled_from(DType),
        _types,
        dim_expressions(4).map(as_dim),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


class _Namer:
    def __init__(self) -> None:
        self.used: set[str] = set()

    def fresh(self, base: str) -> str:
        name, count = base or "v", 0
        while name in self.used:
            count += 1
            name = f"{base}_{count}"
        self.used.add(name)
        return name


@st.composite
def graphs(draw: st.DrawFn, namer: _Namer | None = None, outer: tuple[Value, ...] = (), depth: int = 0) -> Graph:
    """A graph that may read ``outer`` and holds graphs down to ``depth`` 2."""
    namer = namer or _Namer()

    def value(type: TensorType) -> Value:
        return Value(namer.fresh(draw(_names)), type)

    inputs = tuple(value(t) for t in draw(st.lists(_types, max_size=2)))
    constants = {}
    for array in draw(st.lists(st.one_of(arrays(), strings()), max_size=2)):
        constants[value(TensorType(DType.of(array), tuple(array.shape)))] = array
    visible = [*outer, *inputs, *constants]
    nodes = []
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.one_of(_names, st.just(GROUP_OP)))
        attributes = dict(draw(st.dictionaries(_names, _plain_attributes, max_size=2)))
        if depth < 2 and draw(st.booleans()):
            closed = op == GROUP_OP
            body = graphs(namer=None if closed else namer, outer=() if closed else tuple(visible), depth=depth + 1)
            attributes["body"] = draw(body)
        operand = st.none() if not visible else st.one_of(st.none(), st.sampled_from(visible))
        operands = tuple(draw(st.lists(operand, max_size=3)))
        results = tuple(
            None if t is None else value(t) for t in draw(st.lists(st.one_of(st.none(), _types), max_size=2))
        )
        nodes.append(Node(op, operands, results, attributes, draw(_texts)))
        visible += [v for v in results if v is not None]
    outputs = tuple(draw(st.lists(st.sampled_from(visible), max_size=2))) if visible else ()
    return Graph(draw(_names), inputs, outputs, tuple(nodes), constants)


def modules() -> st.SearchStrategy[Module]:
    names = st.lists(_texts, max_size=2).map(tuple)
    kinds = st.builds(ObjectType, st.sampled_from(ValueKind), st.sampled_from(DType))
    return st.builds(
        Module,
        graphs(),
        st.integers(0, 30),
        st.dictionaries(_texts, _texts, max_size=2),
        names,
        names,
        objects=st.dictionaries(_texts, kinds, max_size=2),
        strings=names,
        defaults=st.dictionaries(_texts, arrays(), max_size=2),
    )


def same_graph(a: Graph, b: Graph) -> bool:
    """Equal in every part; arrays bit by bit."""
    return (
        (a.name, a.inputs, a.outputs) == (b.name, b.inputs, b.outputs)
        and same_arrays(a.constants, b.constants)
        and len(a.nodes) == len(b.nodes)
        and all(_same_node(m, n) for m, n in zip(a.nodes, b.nodes, strict=True))
    )


def same_arrays(a: Mapping[Any, np.ndarray], b: Mapping[Any, np.ndarray]) -> bool:
    """Equal in names, order and every bit."""
    return list(a) == list(b) and all(_same_array(x, y) for x, y in zip(a.values(), b.values(), strict=True))


def _same_array(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype == object:
        return a.shape == b.shape and a.tolist() == b.tolist()
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _same_node(a: Node, b: Node) -> bool:
    return (
        (a.op, a.inputs, a.outputs, a.name) == (b.op, b.inputs, b.outputs, b.name)
        and list(a.attributes) == list(b.attributes)
        and all(_same_attribute(x, b.attributes[k]) for k, x in a.attributes.items())
    )


def _same_attribute(a: Attribute, b: Attribute) -> bool:
    if isinstance(a, Graph) and isinstance(b, Graph):
        return same_graph(a, b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_attribute, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b)) and repr(a) == repr(b)
