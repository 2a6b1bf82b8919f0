"""What a part of a graph looks like, as it would be written: ``Relu(Add(MatMul(x, w), b))``."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.graph.ir import Graph, Node, Value, free_values

_OPTIONAL = "_or_none"
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "And", "Or", "Xor", "Equal"})


@dataclass(frozen=True)
class Match:
    """Where a pattern fits.

    Attributes:
        values: what its names stand for; names of operands that a node does not have are not there.
        nodes: the nodes that it covers, the last one giving the result.
        constants: the elements of those of ``values`` that are constants, by name.
    """

    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]

    @property
    def result(self) -> Value:
        """What its last node gives."""
        return self.nodes[-1].results[0]

    def node(self, op: str) -> Node:
        """The first of ``nodes`` whose operator is ``op``.

        Raises:
            IngotError: NOT_FOUND.
        """
        for node in self.nodes:
            if node.op == op:
                return node
        message = f"the pattern covers no {op}"
        raise IngotError(ErrorCode.NOT_FOUND, message, expected=", ".join(n.op for n in self.nodes), received=op)


def _always(match: Match) -> bool:
    return True


@dataclass(frozen=True)
class NodePattern:
    """Nodes with one result that a code generator takes together.

    ``text`` is an expression: operators, and names for operands, ``Relu(Conv(x, w, b))``. A name that stands there twice is one value;
    ``_`` is any. An operand that ends with ``_or_none`` may be absent, and so may those behind it. Operands of sums and products may
    stand the other way around. Values between the nodes are read by nothing else. Operators of domains of their own stand there with
    these: ``com.example.ScaledTanh(x)``.

    Attributes:
        text: what it looks like.
        constants: names of operands that are constants.
        where: asked last, whether a match is taken.

    Raises:
        IngotError: INVALID_ARGUMENT, ``text`` is no such expression, or ``constants`` are none of its names.
    """

    text: str
    constants: frozenset[str] = field(default=frozenset(), kw_only=True)
    where: Callable[[Match], bool] = field(default=_always, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", frozenset(self.constants))
        names = set(_operand_names(self._root))
        if self.constants - names:
            raise _no_pattern(self.text, f"constants {', '.join(sorted(self.constants - names))} that it does not name")

    @cached_property
    def _root(self) -> ast.Call:
        try:
            tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, TypeError, ValueError) as error:
            raise _no_pattern(self.text, str(error)) from error
        _check(self.text, tree)
        assert isinstance(tree, ast.Call)
        return tree

    def match(self, root: Node, site: PartSite) -> Match | None:
        """Where it fits with ``root`` giving the result; None where it does not."""
        for found in _fits(self._root, root, site, _Found()):
            if all(found.values[n] in site.graph.constants for n in self.constants if n in found.values):
                arrays = {n: site.graph.constants[v] for n, v in found.values.items() if v in site.graph.constants}
                match = Match(found.values, found.nodes, arrays)
                if self.where(match):
                    return match
        return None


@dataclass
class PartSite:
    """A graph in which parts are looked for.

    Attributes:
        taken: nodes, by one of their results, that belong to a part already.
    """

    graph: Graph
    taken: set[Value] = field(default_factory=set)

    @cached_property
    def uses(self) -> Counter[Value]:
        """How often each value is read, as an output of the graph or by control flow too."""
        read = Counter(v for n in self.graph.nodes for v in (*n.operands, *free_values(n)))
        read.update(self.graph.outputs)
        return read

    def is_free(self, node: Node) -> bool:
        """Whether a part may take it: it has one result, and belongs to none."""
        return len(node.results) == 1 and node.results[0] not in self.taken


@dataclass(frozen=True)
class _Found:
    values: Mapping[str, Value] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def bound(self, name: str, value: Value) -> _Found | None:
        if name == "_":
            return self
        known = self.values.get(name)
        if known is None:
            return _Found({**self.values, name: value}, self.nodes)
        return self if known == value else None

    def covering(self, node: Node) -> _Found:
        return self if node in self.nodes else _Found(self.values, (*self.nodes, node))


def _fits(wanted: ast.Call, node: Node, site: PartSite, found: _Found) -> Iterator[_Found]:
    """The ways in which ``node`` and what is above it are what is ``wanted``; nodes come behind those that they read."""
    if node.op != ast.unparse(wanted.func) or not site.is_free(node):
        return
    orders = [node.inputs]
    if node.op in _COMMUTATIVE and len(node.inputs) == 2 and node.inputs[0] != node.inputs[1]:
        orders.append(node.inputs[::-1])
    for inputs in orders:
        for inside in _operands(wanted.args, inputs, site, found):
            yield inside.covering(node)


def _operands(
    wanted: list[ast.expr], inputs: tuple[Value | None, ...], site: PartSite, found: _Found
) -> Iterator[_Found]:
    if len(inputs) > len(wanted):
        return
    if not wanted:
        yield found
        return
    first, value = wanted[0], inputs[0] if inputs else None
    for inside in _operand(first, value, site, found):
        yield from _operands(wanted[1:], inputs[1:], site, inside)


def _operand(wanted: ast.expr, value: Value | None, site: PartSite, found: _Found) -> Iterator[_Found]:
    if value is None:
        if isinstance(wanted, ast.Name) and wanted.id.endswith(_OPTIONAL):
            yield found
    elif isinstance(wanted, ast.Name):
        bound = found.bound(wanted.id, value)
        if bound is not None:
            yield bound
    elif isinstance(wanted, ast.Call) and site.uses[value] == 1:
        producer = site.graph.producers.get(value)
        if producer is not None:
            yield from _fits(wanted, producer, site, found)


def _check(text: str, tree: ast.expr, *, outermost: bool = True) -> None:
    match tree:
        case ast.Call(func=ast.Name() | ast.Attribute() as operator, args=args, keywords=[]) if _is_operator(operator):
            for operand in args:
                _check(text, operand, outermost=False)
        case ast.Name() if not outermost:
            return
        case _:
            raise _no_pattern(text, ast.unparse(tree))


def _is_operator(name: ast.expr) -> bool:
    """Whether it names one, with its domain; those of the compiler alone are no subject of patterns."""
    return all(isinstance(n, ast.Name | ast.Attribute | ast.Load) for n in ast.walk(name)) and not ast.unparse(
        name
    ).startswith("ingot.")


def _operand_names(call: ast.Call) -> Iterator[str]:
    for operand in call.args:
        if isinstance(operand, ast.Call):
            yield from _operand_names(operand)
        elif isinstance(operand, ast.Name) and operand.id != "_":
            yield operand.id


def _no_pattern(text: str, received: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"{text!r} is no pattern of nodes",
        field="text",
        expected="operators of operators and names, 'Relu(Add(MatMul(x, w), b))'",
        received=received,
    )
