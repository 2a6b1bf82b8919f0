"""What a code generator is asked for: the code of a model's kernels and of their entry, objects, and a library of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.pipeline import LoopPass, LoopPipeline
from shared_ir.machine.target import Target
from shared_ir.plan.program import Plan


@dataclass(frozen=True)
class SourceCode:
    """Code as text.

    Attributes:
        language: what it is written in, by the name of its files' ending: ``ll``, ``c``.
    """

    language: str
    text: str


class ObjectMaker(Protocol):
    """Makes objects of sources for one target."""

    def submit(self, name: str, source: SourceCode) -> Future[bytes]:
        """The ELF object of ``source``, to come; the future raises IngotError COMPILER_FAULT where it cannot be compiled."""


class Backend(ABC):
    """The code generator of one kind of targets, the first word of their text: ``llvm -mtriple=...``.

    The pipeline asks in this order: :meth:`require`; for each kernel a schedule of a rule that it takes (:meth:`takes_rule`), its loop
    function through :attr:`loop_passes` and :meth:`kernel`; :meth:`entry`; :meth:`objects` for all of these; :meth:`link`.
    """

    version: str = ""
    """Part of what artifacts are known by: it changes wherever the code does that is made."""

    @abstractmethod
    def require(self, target: Target) -> None:
        """Raises IngotError INVALID_TARGET: no code can be made for ``target``."""

    def takes_rule(self, name: str) -> bool:
        """Whether schedules of the rule of this name may be asked for; ``each by itself`` always is."""
        return True

    @property
    def loop_passes(self) -> Sequence[LoopPass]:
        """What loop functions go through before code is made of them; their order is checked."""
        return passes.LOOP_PASSES

    @property
    def loop_pipeline(self) -> LoopPipeline:
        """:attr:`loop_passes` as what runs them.

        Raises:
            IngotError: INVALID_ARGUMENT, their order is not what they declare.
        """
        return LoopPipeline(tuple(self.loop_passes))

    @abstractmethod
    def kernel(self, function: Function, target: Target, symbol: str) -> SourceCode:
        """Code that exports ``symbol``, of type ``ingot_kernel_function`` (``codegen/native/module.h``): tasks from ``begin`` to below
        ``end`` of ``function``, whose buffers and symbols come as two arrays in their order.

        Raises:
            IngotError: UNSUPPORTED_DTYPE, a type or an operation that no code is made for; ``node`` is the function.
        """

    @abstractmethod
    def entry(
        self, plan: Plan, target: Target, kernel_symbols: Sequence[str], compiler_version: str, *, denormals: bool
    ) -> SourceCode:
        """Code that defines ``ingot_this_module`` (``codegen/native/module.h``): sizes, checks and launches of ``plan``.

        Args:
            kernel_symbols: of the kernels of ``plan``, in their order.
            denormals: whether floats too small for a normal number are kept.
        """

    @abstractmethod
    def objects(self, target: Target, workers: int) -> AbstractContextManager[ObjectMaker]:
        """What compiles sources for ``target``, in up to ``workers`` processes of its own; 0: in this process."""

    @abstractmethod
    def link(self, objects: Mapping[str, bytes], target: Target) -> bytes:
        """The shared library of ``objects`` by name, with the C runtime: it exports the functions of ``ingot.h``.

        Raises:
            IngotError: COMPILER_FAULT, with what the linker says.
        """

    @abstractmethod
    def bundle(
        self,
        objects: Mapping[str, bytes],
        weights: bytes | memoryview | Path,
        target: Target,
        kind: Literal["shared", "executable"],
    ) -> bytes:
        """The same with the weights inside: a shared library, or a static program."""

    def assembly(self, source: SourceCode, target: Target) -> str:
        """What ``source`` becomes, for reading; the source itself where there is nothing nearer to the machine."""
        return source.text
