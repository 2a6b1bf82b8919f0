"""Products of matrices and convolutions by oneDNN (``libdnnl``, C API of version 3), which is found when a model is loaded.

A part is the text of ``native/onednn_part.c`` with tables behind it that say what its tensors and steps are; the compiler needs nothing
of oneDNN, and a model none of it but the library: ``pip install onednn-cpu-gomp``, or that of a distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from compiler_service.compiler.codegen.toolchain.link import NATIVE
from compiler_service.compiler.codegen.toolchain.zig import compile_c
from compiler_service.compiler.external.face import ExternalCodegen
from compiler_service.compiler.graph_passes.parts.patterns import Match, NodePattern
from compiler_service.compiler.graph_passes.rewriting.attributes import int_attribute, ints_attribute
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Var
from shared_ir.expr.dim import Dim
from shared_ir.graph.ir import Graph, Node, Value
from shared_ir.machine.target import Target

_MOST_AXES = 5
_SPATIAL = 3
_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}")


class OneDnn(ExternalCodegen):
    """The code generator; ``library`` is what ``dlopen`` is asked for: a name that the system finds, or a path.

    Raises:
        IngotError: INVALID_ARGUMENT, ``library`` is neither.
    """

    def __init__(self, library: str = "libdnnl.so.3") -> None:
        if not isinstance(library, str) or not library or "\0" in library:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "that is no name of a library",
                field="library",
                expected="libdnnl.so.3, or a path",
                received=repr(library)[:80],
            )
        self.library = library

    @property
    def version(self) -> str:  # type: ignore[override]
        return f"onednn-1 {self.library}"

    @property
    def patterns(self) -> Sequence[NodePattern]:
        return PATTERNS

    def part(self, graph: Graph, target: Target, symbol: str) -> bytes:
        return compile_c(self.text(graph, symbol), target, _FLAGS)

    def text(self, graph: Graph, symbol: str) -> str:
        """The C99 of a part, which takes ``ingot_part.h`` to compile."""
        return f"{(NATIVE / 'onednn_part.c').read_text()}\n{_Tables(graph, self.library).text(symbol)}"


# -- what it takes


def _is_plain(match: Match) -> bool:
    """Floats of a precision that both have, of as many axes as the tables hold."""
    values = (*match.values.values(), match.result)
    return all(v.dtype is DType.FLOAT32 and v.type.rank <= _MOST_AXES for v in values)


def _is_row(value: Value | None, columns: Dim) -> bool:
    return value is None or value.shape in ((columns,), (1, columns))


def _is_product(match: Match) -> bool:
    x, w = match.values["x"], match.values["w"]
    return _is_plain(match) and x.type.rank >= 2 and w.type.rank == 2 and _is_row(match.values.get("b"), w.shape[1])


def _is_gemm(match: Match) -> bool:
    node, w = match.node("Gemm"), match.values["w"]
    plain = all(node.attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))
    columns = w.shape[0] if int_attribute(node, "transB") else w.shape[1]
    return (
        plain
        and _is_plain(match)
        and not int_attribute(node, "transA")
        and _is_row(match.values.get("b_or_none"), columns)
    )


def _is_convolution(match: Match) -> bool:
    node, spatial = match.node("Conv"), match.values["x"].type.rank - 2
    automatic = node.attributes.get("auto_pad", "NOTSET")
    return _is_plain(match) and 1 <= spatial <= _SPATIAL and automatic in ("NOTSET", "VALID")


def _rows(text: str, constants: Sequence[str], where: Callable[[Match], bool]) -> tuple[NodePattern, NodePattern]:
    """With ReLU and without."""
    known = frozenset(constants)
    return NodePattern(f"Relu({text})", constants=known, where=where), NodePattern(text, constants=known, where=where)


PATTERNS = (
    *_rows("Add(MatMul(x, w), b)", ("w", "b"), _is_product),
    *_rows("MatMul(x, w)", ("w",), _is_product),
    *_rows("Gemm(x, w, b_or_none)", ("w", "b_or_none"), _is_gemm),
    *_rows("Conv(x, w, b_or_none)", ("w", "b_or_none"), _is_convolution),
)


# -- what is written of a part


@dataclass
class _Step:
    """One primitive."""

    node: Node
    result: Value
    bias: Value | None = None
    relu: bool = False


@dataclass
class _Tables:
    """The tables of a part: tensors are numbered inputs first, then constants, the result, and what is between steps."""

    graph: Graph
    library: str
    steps: list[_Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        by_result: dict[Value, _Step] = {}
        for node in self.graph.nodes:
            (result,) = node.results
            if node.op in ("MatMul", "Gemm", "Conv"):
                bias = node.inputs[2] if len(node.inputs) > 2 else None
                step = _Step(node, result, bias)
                self.steps.append(step)
            else:
                before = next(v for v in node.operands if v in by_result)
                step = by_result[before]
                step.result = result
                step.relu = node.op == "Relu"
                if node.op == "Add":
                    step.bias = next(v for v in node.operands if v != before)
            by_result[result] = step

    def text(self, symbol: str) -> str:
        """C behind that of ``onednn_part.c``."""
        tensors = self._tensors()
        symbols = {d: i for i, d in enumerate(self._symbols())}
        given = len(self.graph.inputs) + len(self.graph.constants)
        extents = [[_extent(d, symbols) if i < given else 0 for d in v.shape] for i, v in enumerate(tensors)]
        rows = ",\n    ".join(f"{{{len(e)}, {{{', '.join(map(str, e or [0]))}}}}}" for e in extents)
        steps = ",\n    ".join(self._step(step, tensors) for step in self.steps)
        counts = (len(self.graph.inputs), len(self.graph.constants), len(tensors), len(self.steps), len(symbols))
        return "\n".join(
            [
                f"static const tensor_info tensors[] = {{\n    {rows}}};",
                f"static const step_info steps[] = {{\n    {steps}}};",
                f"static const part_info the_part = {{{_quoted(self.library)}, {_quoted(self.graph.name)}, tensors, steps,",
                f"                                   {', '.join(map(str, counts))}}};",
                "static int32_t open_part(const void *const *constants, int32_t threads, void **opened, char *error) {",
                "  return open_of(&the_part, constants, threads, opened, error);",
                "}",
                f'extern const ingot_part {symbol} __attribute__((visibility("hidden")));',
                f"const ingot_part {symbol} = {{open_part, run_part, close_part}};",
                "",
            ]
        )

    def _tensors(self) -> list[Value]:
        between = (step.result for step in self.steps[:-1])
        return [*self.graph.inputs, *self.graph.constants, *self.graph.outputs, *between]

    def _symbols(self) -> list[str]:
        found = dict.fromkeys(d.name for v in self.graph.inputs for d in v.shape if isinstance(d, Var))
        return list(found)

    def _step(self, step: _Step, tensors: list[Value]) -> str:
        node = step.node
        numbers = [node.inputs[0], node.inputs[1], step.bias, step.result]
        source, weights, bias, result = (-1 if v is None else tensors.index(v) for v in numbers)
        convolution, transposed = int(node.op == "Conv"), int_attribute(node, "transB", 0)
        heads = f"{convolution}, {source}, {weights}, {bias}, {result}, {int(step.relu)}, {transposed}"
        spatial = node.inputs[0].type.rank - 2 if convolution and node.inputs[0] else 0
        pads = ints_attribute(node, "pads", (0,) * (2 * spatial)) if convolution else ()
        dilations = [d - 1 for d in ints_attribute(node, "dilations", (1,) * spatial)]
        lists = (ints_attribute(node, "strides", (1,) * spatial), dilations, pads[:spatial], pads[spatial:])
        rows = ", ".join(f"{{{', '.join(map(str, own)) or '0'}}}" for own in lists)
        return f"{{{heads}, {int_attribute(node, 'group', 1)}, {rows}}}"


def _extent(dim: Dim, symbols: Mapping[str, int]) -> int:
    """As the tables have it: inputs have no extents but numbers and symbols."""
    assert isinstance(dim, int | Var)
    return dim if isinstance(dim, int) else -1 - symbols[dim.name]


def _quoted(text: str) -> str:
    """As a literal of C."""
    plain = b"_-./ " + bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123))
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'
