"""The compiler for what is scheduled by hand: a staged program in, an artifact out."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.codegen.emit.kernel import emit_kernel, scratch_size
from compiler_service.compiler.codegen.entry.module import emit_entry
from compiler_service.compiler.codegen.toolchain.link import link_library, min_glibc
from compiler_service.compiler.codegen.toolchain.objects import ObjectCompiler
from compiler_service.compiler.codegen.toolchain.support import require_llvm
from compiler_service.compiler.loop_ir import passes as loop_passes
from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.program.plan import build_program
from compiler_service.compiler.program.staged import StagedKernel, staged_variant
from compiler_service.compiler.schedule.staging.program import StagedProgram
from compiler_service.compiler.tensor_expr.tensor import Tensor
from compiler_service.compiler.version import compiler_version
from shared_ir.artifact.value import ABI_VERSION, CompiledArtifact, Manifest, artifact_key
from shared_ir.digest import sha256_hex
from shared_ir.machine.target import Target


def compile_staged(program: StagedProgram, arguments: Sequence[Tensor], name: str, target: Target) -> CompiledArtifact:
    """Compile ``program``, whose arguments are in this order, for ``target``, in this process.

    Raises:
        IngotError: INVALID_ARGUMENT, the schedule does not fit; COMPILER_FAULT.
    """
    require_llvm(target)
    variant, staged = staged_variant(program, arguments, name, target)
    built = [_built(each, target) for each in staged]
    texts = {b.kernel.name: emit_kernel(b.function, target, b.kernel.name) for b in built}
    scratch = [scratch_size(b.function) for b in built]
    made = build_program([variant], range(len(built)), built, scratch, name)
    texts["entry"] = emit_entry(made.plan, target, [b.kernel.name for b in built], compiler_version())
    with ObjectCompiler(target, workers=0) as compiler:
        objects = {label: compiler.submit(label, text).result() for label, text in texts.items()}
    library = link_library(objects, target)
    source = sha256_hex("\n".join(b.kernel.key for b in built).encode())
    version = compiler_version()
    manifest = Manifest(
        name=name,
        key=artifact_key(source, target, {}, "", version),
        abi_version=ABI_VERSION,
        compiler_version=version,
        triple=target.triple,
        cpu=target.cpu,
        features=target.features,
        min_glibc=min_glibc(target),
        model_sha256=source,
        options={},
    )
    return CompiledArtifact(manifest, made.plan, library, made.weights.write(None), {"kernels": len(built)}, {})


def _built(staged: StagedKernel, target: Target) -> BuiltKernel:
    nest = staged.kernel.lower(staged.schedule, target)
    required = staged.kernel.required_extents(nest)
    return BuiltKernel(staged.kernel, "by hand", staged.schedule, loop_passes.run(nest), "", required)
