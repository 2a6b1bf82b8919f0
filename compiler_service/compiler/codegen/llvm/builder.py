"""Text of an LLVM module, written line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from compiler_service.compiler.codegen.llvm.capabilities import TargetCapabilities
from compiler_service.compiler.codegen.llvm.llvm_types import register_type, suffix, vector
from shared_ir.dtype import DType
from shared_ir.machine.target import Target

Lines = list["str | Lines"]
"""Instructions in order; a list among them is a place that is still being filled."""


class LlvmValue(NamedTuple):
    """An SSA value or literal operand of an element type and lane count."""

    text: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        return register_type(self.dtype, self.lanes)


class LlvmModule:
    """The module under construction: intrinsics it declares, helper functions it defines, and its kernels."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.capabilities = TargetCapabilities.of(target)
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, str] = {}

    def intrinsic(self, name: str, result: str, parameters: str) -> str:
        """Declares ``name`` once; returns it with its sigil."""
        if name not in self._declarations:
            self._declarations[name] = f"declare {result} @{name}({parameters})"
        return f"@{name}"

    def helper(self, name: str, write: Callable[[], str]) -> str:
        """Defines the internal function ``name`` on first use; ``write`` gives its text."""
        if name not in self._functions:
            self._functions[name] = ""  # its place in the text, before the helpers that it calls in turn
            self._functions[name] = write()
        return f"@{name}"

    def define(self, name: str, text: str) -> None:
        self._functions[name] = text

    def text(self) -> str:
        bits = self.target.vector_bits
        head = [
            f'target triple = "{self.target.triple}"',
            *self._declarations.values(),
            *self._functions.values(),
            # memset, memcpy and libm are not there to be called: artifacts are freestanding
            f'attributes #0 = {{ nounwind "no-builtins" "min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}" }}',
            "",
        ]
        return "\n".join(head)


class FunctionBuilder:
    """The instructions of one function, with fresh names and basic blocks."""

    def __init__(self, module: LlvmModule) -> None:
        self.module = module
        self.capabilities = module.capabilities
        self.entry: list[str] = []
        self.lines: Lines = []
        self.block = "entry"
        self._next = 0

    def emit(self, text: str) -> str:
        """Appends ``%n = text``; returns ``%n``."""
        self._next += 1
        name = f"%v{self._next}"
        self.lines.append(f"  {name} = {text}")
        return name

    def at_entry(self, text: str) -> str:
        """``%n = text`` at the start of the function."""
        self._next += 1
        name = f"%v{self._next}"
        self.entry.append(f"  {name} = {text}")
        return name

    def place(self) -> Lines:
        """A place for instructions before what follows."""
        lines: Lines = []
        self.lines.append(lines)
        return lines

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        self._next += 1
        return f"{hint}{self._next}"

    def start(self, label: str) -> None:
        """Starts the block ``label``; the block before must have ended in a branch."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def branch_if(self, condition: str, then: str, otherwise: str) -> None:
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}")

    def alloca(self, element: str, count: int) -> str:
        """Memory in the frame, allocated once at entry whatever loop uses it."""
        self._next += 1
        name = f"%stack{self._next}"
        self.entry.append(f"  {name} = alloca [{count} x {element}], align 64")
        return name

    def call(self, name: str, element: str, lanes: int, operands: Iterable[str]) -> str:
        """A call of an elementwise intrinsic (``llvm.sqrt``) whose operands and result have one type."""
        operands = tuple(operands)
        kind = vector(element, lanes)
        function = self.module.intrinsic(f"{name}.{suffix(element, lanes)}", kind, ", ".join([kind] * len(operands)))
        return self.emit(f"call {kind} {function}({', '.join(f'{kind} {o}' for o in operands)})")

    def splat(self, text: str, element: str, lanes: int) -> str:
        """A scalar in every lane."""
        if lanes == 1:
            return text
        kind = vector(element, lanes)
        one = self.emit(f"insertelement {kind} poison, {element} {text}, i64 0")
        return self.emit(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def body(self) -> str:
        return "\n".join(["entry:", *self.entry, *_flattened(self.lines)])


def _flattened(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flattened(line)
