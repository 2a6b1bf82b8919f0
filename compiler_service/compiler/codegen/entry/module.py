"""The generated entry: the plan as LLVM IR, so that one native call runs the whole model.

Defines ``ingot_this_module`` of ``native/module.h``: tables of inputs, outputs and kernels, and the functions
``resolve``, ``arena_size``, ``output_shapes`` and ``execute`` with every dim compiled to int64 arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from compiler_service.compiler.codegen.entry.dim_code import DECLARATIONS, Body, DimCode
from compiler_service.compiler.codegen.entry.steps import DONE, EXECUTE_TYPES, MOST_TOGETHER, NO_MEMORY, emit_execute
from shared_ir.dtype import ONNX_DTYPES
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Expr, Var, lift, select
from shared_ir.expr.dim import Dim, as_dim, dim_symbols, dim_text
from shared_ir.machine.target import Target
from shared_ir.plan.json_form import plan_digest
from shared_ir.plan.program import (
    Branch,
    Call,
    Check,
    Constraint,
    Launch,
    Plan,
    Repeat,
    Step,
    Storage,
    TensorSpec,
    walk_steps,
)
from shared_ir.versions import ABI_VERSION

BUNDLED_WEIGHTS = "ingot_bundled_weights"
"""Symbol of embedded weights; an undefined weak symbol, hence NULL, in a library without them."""

_AFTER = "after the run"
"""What ``output_shapes`` calls its last argument."""

_TYPES = """\
%tensor_info = type { ptr, i32, i32, ptr, ptr }
%kernel = type { ptr, ptr, i64, ptr, ptr, i32 }
%default = type { i64, ptr }
%module = type { i32, ptr, ptr, i32, i32, i32, i32, i32, ptr, ptr, ptr, i64, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, ptr }"""


def emit_entry(
    plan: Plan, target: Target, kernel_symbols: Sequence[str], compiler_version: str, *, denormals: bool = False
) -> str:
    """LLVM IR of ``ingot_this_module`` for ``plan``.

    ``kernel_symbols[i]`` is the linker symbol of ``plan.kernels[i]``: an ``ingot_kernel_function``, of parts an ``ingot_part``.
    ``denormals`` are kept where asked for (``native/float_mode.c``).
    """
    constants, checks, digest = _Constants(), _checks(plan), plan_digest(plan)
    plan = replace(plan, steps=without_calls(plan.steps))
    in_run = [s.constraint for s in walk_steps(plan.steps) if isinstance(s, Check)]
    execute = emit_execute(plan, len(checks))
    functions = [
        *_resolve(plan, checks),
        _arena_size(plan),
        *_output_shapes(plan),
        *(_function(f"i32 @{name}(ptr %frame)", body) for name, body in execute.items()),
    ]
    texts = [*(check.message for check in checks), *(_message(c) for c in in_run)]
    messages = constants.table("ptr", [constants.text(text) for text in texts])
    slots = constants.table("i32", [str(plan.output_slot(i)) for i in range(len(plan.outputs))])
    fields = [
        f"i32 {ABI_VERSION}",
        f"ptr {constants.text(compiler_version)}",
        f"ptr {constants.text(plan.name)}",
        f"i32 {len(plan.inputs)}",
        f"i32 {len(plan.outputs)}",
        f"i32 {len(plan.kernels)}",
        f"i32 {len(plan.symbols) + len(plan.run_symbols)}",
        f"i32 {plan.slots}",
        f"ptr {_tensor_table(constants, plan.inputs)}",
        f"ptr {_tensor_table(constants, plan.outputs)}",
        f"ptr {_kernel_table(constants, plan, kernel_symbols)}",
        f"i64 {plan.weights_size}",
        f"ptr @{BUNDLED_WEIGHTS}",
        "ptr @resolve",
        f"ptr {messages}",
        "ptr @arena_size",
        "ptr @output_shapes",
        "ptr @execute",
        f"ptr {slots}",
        f"ptr {_default_table(constants, plan)}",
        f"ptr {constants.text(','.join(sorted(target.required_features)))}",
        f"i32 {int(denormals)}",
        f"ptr {constants.text(digest)}",
    ]
    return "\n".join(
        [
            f'target triple = "{target.triple}"',
            _TYPES,
            EXECUTE_TYPES,
            f"@{BUNDLED_WEIGHTS} = extern_weak hidden constant i8",
            *_declarations(plan, kernel_symbols),
            *DECLARATIONS,
            *constants.lines,
            f"@ingot_this_module = hidden constant %module {{ {', '.join(fields)} }}",
            *functions,
            "",
        ]
    )


def without_calls(steps: Iterable[Step]) -> tuple[Step, ...]:
    """``steps`` in which a call, which native code cannot make, ends the run with its reason."""
    found: list[Step] = []
    for step in steps:
        match step:
            case Call():
                message = f"{step.function} of strings, sequences or optionals: only the graph executor runs it; its steps here"
                found.append(Check(Constraint(0, 1, message)))
            case Branch(then=then, otherwise=otherwise):
                found.append(replace(step, then=without_calls(then), otherwise=without_calls(otherwise)))
            case Repeat(body=body):
                found.append(replace(step, body=without_calls(body)))
            case _:
                found.append(step)
    return tuple(found)


def _global(name: str) -> str:
    return f'@"{_escape(name)}"'


def _escape(text: str) -> str:
    data = text.encode()
    return "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)


class _Constants:
    """Private constants of the module; equal strings and tables are emitted once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}

    def text(self, text: str) -> str:
        size = len(text.encode()) + 1
        return self._define(f'[{size} x i8] c"{_escape(text)}\\00"')

    def table(self, kind: str, items: Iterable[str]) -> str:
        entries = [f"{kind} {item}" for item in items]
        return self._define(f"[{len(entries)} x {kind}] [{', '.join(entries)}]")

    def _define(self, value: str) -> str:
        if value not in self._names:
            self._names[value] = name = f"@c{len(self._names)}"
            self.lines.append(f"{name} = private unnamed_addr constant {value}")
        return self._names[value]


def _tensor_table(constants: _Constants, tensors: Sequence[TensorSpec]) -> str:
    rows = []
    for tensor in tensors:
        shape = constants.table("i64", [str(d) if isinstance(d, int) else "-1" for d in tensor.shape])
        texts = constants.table("ptr", [constants.text(dim_text(d)) for d in tensor.shape])
        name = constants.text(tensor.name)
        dtype = ONNX_DTYPES[tensor.memory_dtype]
        rows.append(f"{{ ptr {name}, i32 {dtype}, i32 {len(tensor.shape)}, ptr {shape}, ptr {texts} }}")
    return constants.table("%tensor_info", rows)


def _default_table(constants: _Constants, plan: Plan) -> str:
    rows = []
    for tensor in plan.inputs:
        if tensor.is_optional:
            buffer = plan.buffers[tensor.default]
            shape = constants.table("i64", [str(d) for d in buffer.shape])
            rows.append(f"{{ i64 {buffer.offset}, ptr {shape} }}")
        else:
            rows.append("{ i64 -1, ptr null }")
    return constants.table("%default", rows)


def _declarations(plan: Plan, symbols: Sequence[str]) -> Iterable[str]:
    are_parts = {symbol: bool(kernel.part) for kernel, symbol in zip(plan.kernels, symbols, strict=True)}
    for symbol, is_part in are_parts.items():
        if is_part:
            yield f"{_global(symbol)} = external hidden constant i8"
        else:
            yield f"declare hidden void {_global(symbol)}(ptr, ptr, i64, i64, ptr)"


def _kernel_table(constants: _Constants, plan: Plan, symbols: Sequence[str]) -> str:
    handed = _handed_constants(plan)
    rows = []
    for number, (kernel, symbol) in enumerate(zip(plan.kernels, symbols, strict=True)):
        function, part = ("null", _global(symbol)) if kernel.part else (_global(symbol), "null")
        offsets = handed.get(number, ())
        table = constants.table("i64", map(str, offsets)) if offsets else "null"
        fields = f"ptr {function}, i64 {kernel.scratch}, ptr {part}, ptr {table}, i32 {len(offsets)}"
        rows.append(f"{{ ptr {constants.text(kernel.name)}, {fields} }}")
    return constants.table("%kernel", rows)


def _handed_constants(plan: Plan) -> dict[int, tuple[Dim, ...]]:
    """Where in the weights the constants of each part are, by the number of its kernel; a part is launched with the same ones always.

    Raises:
        IngotError: COMPILER_FAULT, it is not.
    """
    found: dict[int, tuple[Dim, ...]] = {}
    for step in walk_steps(plan.steps):
        if isinstance(step, Launch) and (kernel := plan.kernels[step.kernel]).part:
            buffers = [plan.buffers[b] for b in step.buffers[len(step.buffers) - 1 - kernel.constants : -1]]
            offsets = tuple(b.offset for b in buffers)
            if (
                any(b.storage is not Storage.WEIGHT for b in buffers)
                or found.setdefault(step.kernel, offsets) != offsets
            ):
                message = "a part of the model has constants that differ from launch to launch"
                raise IngotError(ErrorCode.COMPILER_FAULT, message, node=kernel.name)
    return found


@dataclass(frozen=True)
class _Check:
    """``received`` (the extent of an input's axis, or a dim) must equal ``expected``, or be no less with ``lower``."""

    received: tuple[int, int] | Dim
    expected: Dim
    lower: bool
    message: str


def _checks(plan: Plan) -> list[_Check]:
    """Extents of inputs that follow from symbols defined elsewhere, then the constraints of the plan."""
    sources = {(s.input, s.axis) for s in plan.symbols}
    implied = [
        _Check((i, axis), dim, False, f"input '{tensor.name}' axis {axis} ({dim_text(dim)}): expected")
        for i, tensor in enumerate(plan.inputs)
        for axis, dim in enumerate(tensor.shape)
        if isinstance(dim, Expr) and (i, axis) not in sources
    ]
    stated = [_Check(c.actual, c.expected, c.lower, _message(c)) for c in plan.constraints]
    return implied + stated


def _message(constraint: Constraint) -> str:
    return f"{constraint.message.rstrip('.')}: expected{' at least' if constraint.lower else ''}"


def _symbol_loader(body: Body, plan: Plan, table: str) -> Callable[[str], str]:
    positions = {source.name: i for i, source in enumerate(plan.symbols)}
    return lambda name: body.element(table, positions[name])


def _resolve(plan: Plan, checks: Sequence[_Check]) -> list[str]:
    """Functions, the last of which reads the symbols off the inputs and checks what is required of them."""
    numbers = range(len(plan.symbols))
    if len(numbers) + len(checks) <= MOST_TOGETHER:
        body = Body()
        _check_all(body, plan, checks, 0, _store_symbols(body, plan, numbers))
        return [_resolving("resolve", body)]
    parts: dict[str, Body] = {}
    for first in numbers[::MOST_TOGETHER]:
        body = parts[f"resolve_{len(parts)}"] = Body()
        _store_symbols(body, plan, numbers[first : first + MOST_TOGETHER])
        body.add(f"ret i32 {DONE}")
    for first in range(0, len(checks), MOST_TOGETHER):
        body = parts[f"resolve_{len(parts)}"] = Body()
        _check_all(body, plan, checks[first : first + MOST_TOGETHER], first, {})
    whole = Body()
    for name in parts:
        found = whole.value(f"call i32 @{name}(ptr %input_shapes, ptr %symbols, ptr %expected, ptr %received)")
        done, ended = whole.fresh_label("done"), whole.fresh_label("ended")
        whole.add(f"br i1 {whole.value(f'icmp eq i32 {found}, {DONE}')}, label %{done}, label %{ended}")
        whole.label(ended)
        whole.add(f"ret i32 {found}")
        whole.label(done)
    whole.add(f"ret i32 {DONE}")
    return [*(_resolving(name, body) for name, body in parts.items()), _resolving("resolve", whole)]


def _resolving(name: str, body: Body) -> str:
    return _function(f"i32 @{name}(ptr %input_shapes, ptr %symbols, ptr %expected, ptr %received)", body)


Extents: TypeAlias = dict[tuple[int, int], str]
"""Register of an extent by input and axis."""


def _extent(body: Body, known: Extents, place: tuple[int, int]) -> str:
    if place not in known:
        known[place] = body.element(body.element("%input_shapes", place[0], "ptr"), place[1])
    return known[place]


def _store_symbols(body: Body, plan: Plan, numbers: Iterable[int]) -> Extents:
    """The extents that were read."""
    known: Extents = {}
    for i in numbers:
        value = _extent(body, known, (plan.symbols[i].input, plan.symbols[i].axis))
        body.add(f"store i64 {value}, ptr {body.address('%symbols', i)}")
    return known


def _check_all(body: Body, plan: Plan, checks: Sequence[_Check], first: int, known: Extents) -> None:
    """Ends with -1, or with the number of the first of ``checks`` that does not hold; they count from ``first``."""
    load = _symbol_loader(body, plan, "%symbols")
    places = {source.name: (source.input, source.axis) for source in plan.symbols}
    code = DimCode(
        body, lambda name: known[places[name]] if places[name] in known else load(name), f"ret i32 {NO_MEMORY}"
    )
    for index, check in enumerate(checks, start=first):
        received = (
            _extent(body, known, check.received) if isinstance(check.received, tuple) else code.operand(check.received)
        )
        expected = code.operand(check.expected)
        holds = body.value(f"icmp {'sge' if check.lower else 'eq'} i64 {received}, {expected}")
        body.add(f"br i1 {holds}, label %holds{index}, label %broken{index}")
        body.label(f"broken{index}")
        body.add(f"store i64 {expected}, ptr %expected")
        body.add(f"store i64 {received}, ptr %received")
        body.add(f"ret i32 {index}")
        body.label(f"holds{index}")
    body.add(f"ret i32 {DONE}")


def _arena_size(plan: Plan) -> str:
    body = Body()
    code = DimCode(body, _symbol_loader(body, plan, "%symbols"), "ret i64 -1")
    body.add(f"ret i64 {code.operand(plan.arena_size)}")
    return _function("i64 @arena_size(ptr %symbols)", body)


def _output_shapes(plan: Plan) -> list[str]:
    """Functions, the last of which writes the shapes of the outputs."""
    numbers = range(len(plan.outputs))
    if len(numbers) <= MOST_TOGETHER:
        return [_shapes_of(plan, "output_shapes", numbers)]
    chunks = {f"output_shapes_{i}": numbers[i : i + MOST_TOGETHER] for i in numbers[::MOST_TOGETHER]}
    whole = Body()
    for name in chunks:
        found = whole.value(f"call i32 @{name}(ptr %symbols, ptr %shapes, i32 %after)")
        whole.leave_if(whole.value(f"icmp ne i32 {found}, {DONE}"), f"ret i32 {NO_MEMORY}")
    whole.add(f"ret i32 {DONE}")
    parts = [_shapes_of(plan, name, chunk) for name, chunk in chunks.items()]
    return [*parts, _function("i32 @output_shapes(ptr %symbols, ptr %shapes, i32 %after)", whole)]


def _shapes_of(plan: Plan, name: str, numbers: Iterable[int]) -> str:
    body = Body()
    positions = {symbol: i for i, symbol in enumerate([*(s.name for s in plan.symbols), *plan.run_symbols])}

    def load(symbol: str) -> str:
        return body.value("zext i32 %after to i64") if symbol == _AFTER else body.element("%symbols", positions[symbol])

    code = DimCode(body, load, f"ret i32 {NO_MEMORY}")
    for i in numbers:
        tensor = plan.outputs[i]
        if not tensor.shape:
            continue
        shape = body.element("%shapes", i, "ptr")
        for axis, dim in enumerate(tensor.shape):
            if not dim_symbols([dim]).isdisjoint(plan.run_symbols):
                dim = as_dim(select(lift(Var(_AFTER)) > 0, dim, -1))
            body.add(f"store i64 {code.operand(dim)}, ptr {body.address(shape, axis)}")
    body.add(f"ret i32 {DONE}")
    return _function(f"i32 @{name}(ptr %symbols, ptr %shapes, i32 %after)", body)


def _function(signature: str, body: Body) -> str:
    return "\n".join([f"define internal {signature} nounwind {{", body.text(), "}"])
