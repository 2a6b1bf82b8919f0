"""The compiler for what is scheduled by hand: a staged program in, an artifact out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.describing import describe
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import CodeSettings, generate
from compiler_service.compiler.program.staged import StagedKernel, staged_variant
from compiler_service.compiler.progress import Log, silent
from compiler_service.compiler.schedule.default import ChosenSchedule
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.artifact.value import CompiledArtifact
from shared_ir.machine.target import Target


def compile_staged(
    program: StagedProgram,
    arguments: Sequence[Tensor],
    name: str,
    target: Target,
    options: CompileOptions | None = None,
) -> CompiledArtifact:
    """Compile ``program``, whose arguments are in this order, for ``target``, in this process.

    Raises:
        IngotError: INVALID_ARGUMENT, the schedule does not fit; COMPILER_FAULT.
    """
    options, log = options or CompileOptions(), Log.from_environment(silent)
    backend_of(target).require(target)
    with log.stage("kernels"):
        variant, staged = staged_variant(program, arguments, name, target)
    ways = [(each.kernel, (_by_hand(each),)) for each in staged]
    code = generate([variant], range(len(staged)), ways, CodeSettings(name, target, options, workers=0), log)
    with log.stage("link"):
        library = backend_of(target).link(code.objects, target)
    definitions = "\n".join(f"{each.kernel.key}\n{each.schedule}" for each in staged)
    manifest = describe(name, ModelSource.of(definitions.encode()), target, options, b"")
    facts = {"kernels": len(staged), "stages": dict(log.seconds)}
    return CompiledArtifact(manifest, code.plan, library, code.weights, facts, {})


def _by_hand(staged: StagedKernel) -> Callable[[], ChosenSchedule | None]:
    return partial(ChosenSchedule, "by hand", staged.schedule)
