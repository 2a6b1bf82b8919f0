"""What a code generator that takes parts of models is asked for: which parts it takes, and an object of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from compiler_service.compiler.codegen.toolchain.link import NATIVE
from compiler_service.compiler.graph_passes.parts.patterns import NodePattern
from shared_ir.graph.ir import Graph
from shared_ir.machine.target import Target


class ExternalCodegen(ABC):
    """A code generator for parts of models, whatever the target of the rest; ``ingot.codegen.register_external`` gives it a name.

    ``ir.passes.AnnotateTarget(name)`` marks what :attr:`patterns` fit, ``ir.passes.MergeRegions()`` joins what lies side by side, and
    ``ir.passes.PartitionGraph()`` makes functions of it, which :meth:`part` is asked for when the module is compiled.
    """

    version: str = ""
    """Part of what artifacts are known by: it changes wherever the code does that is made."""

    @property
    @abstractmethod
    def patterns(self) -> Sequence[NodePattern]:
        """What it takes; where several fit, the first."""

    @abstractmethod
    def part(self, graph: Graph, target: Target, symbol: str) -> bytes:
        """The ELF object of ``graph`` for ``target``: it exports ``symbol``, an ``ingot_part`` (``codegen/native/ingot_part.h``), and
        needs nothing but libc, or what it finds at run time.

        Args:
            graph: one result; extents of its inputs are numbers or symbols. Its constants are ``graph.constants``, in that order.

        Raises:
            IngotError: no code can be made for it; ``node`` is what is at fault.
        """


def part_header() -> str:
    """The text of ``ingot_part.h``, which C code of a part begins with."""
    return (NATIVE / "ingot_part.h").read_text()
