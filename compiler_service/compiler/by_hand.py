"""The compiler for what is scheduled by hand: a staged program in, an artifact out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.describing import describe
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.loop_ir.positions.unproven import UnprovenPositionError
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import CodeSettings, build_kernel, generate
from compiler_service.compiler.program.staged import StagedKernel, staged_variant
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.schedule.default import ChosenSchedule
from compiler_service.compiler.schedule.staging.lowered import LoweredKernel
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.machine.target import Target


@dataclass(frozen=True)
class StagedFunction:
    """What one call computes: the kernels of a staged program for a machine."""

    name: str
    target: Target
    variant: Variant
    kernels: tuple[StagedKernel, ...]

    @classmethod
    def of(
        cls,
        program: StagedProgram,
        lowered: Sequence[LoweredKernel],
        arguments: Sequence[Tensor],
        name: str,
        target: Target,
    ) -> Self:
        """``program``, whose nests were ``lowered`` for ``target``, called with ``arguments`` in this order.

        Raises:
            IngotError: INVALID_ARGUMENT, a symbol follows from no argument.
        """
        return cls(name, target, *staged_variant(program, lowered, arguments, name))

    def compiled(self, options: CompileOptions | None = None) -> CompiledArtifact:
        """Its code, made in this process.

        Raises:
            IngotError: INVALID_ARGUMENT, the schedule does not fit, or a position from data is not proven to be inside;
                COMPILER_FAULT.
        """
        options, log = options or CompileOptions(), Log.from_environment(silent)
        name, target, backend = self.name, self.target, backend_of(self.target)
        backend.require(target)
        ways = [(each.kernel, (_by_hand(each),)) for each in self.kernels]
        settings = CodeSettings(name, target, options, workers=0)
        with _positions_of_the_author():
            code = generate([self.variant], range(len(ways)), ways, settings, log)
        with log.stage("link"):
            library = backend.link(code.objects, target)
        definitions = "\n".join(f"{each.kernel.key}\n{each.schedule}" for each in self.kernels)
        manifest = describe(name, ModelSource.of(definitions.encode()), target, options, b"")
        facts = {"kernels": len(ways), "stages": dict(log.seconds)}
        return CompiledArtifact(manifest, code.plan, library, code.weights, facts, {})

    def text(self, form: Literal["llvm", "asm"]) -> str:
        """The kernels as LLVM IR (what else the code generator of the target writes) or as assembly, one after the other."""
        log, backend, found = Log.from_environment(silent), backend_of(self.target), []
        for each in self.kernels:
            with _positions_of_the_author():
                built = build_kernel(each.kernel, self.target, (_by_hand(each),), backend.loop_pipeline, log)
            source = backend.kernel(built.function, self.target, each.kernel.name)
            found.append(source.text if form == "llvm" else backend.assembly(source, self.target))
        return "\n".join(found)


@contextmanager
def _positions_of_the_author() -> Iterator[None]:
    """Who writes a computation by hand says where it reads."""
    try:
        yield
    except UnprovenPositionError as error:
        raise error.of_the_author() from error


def _by_hand(staged: StagedKernel) -> Callable[[], ChosenSchedule | None]:
    return partial(ChosenSchedule, "by hand", staged.schedule)
