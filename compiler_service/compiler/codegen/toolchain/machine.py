"""LLVM IR text to objects and assembly, for any target, through llvmlite."""

from __future__ import annotations

import enum
from functools import cache

import llvmlite.binding as llvm

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cpu_features import BASELINE_FEATURES
from shared_ir.machine.target import Target

KIND = "llvm"
"""Of the targets that code is generated for: the first word of their text form."""
_ABI = {"riscv64": "lp64d"}
"""As the C parts have it; where the features do not carry it, LLVM takes another: :func:`.support.require_llvm` refuses them."""
_BARE = {"riscv64": ("generic", "generic-rv64")}
"""Processors that have less in LLVM than every machine of the architecture under Linux."""
_QUICK_PASSES = ("sroa", "simplify_cfg", "instruction_combine", "dead_store_elimination", "simplify_cfg")
_MOST_LINES_AT_FULL_EFFORT = 4000
"""Lines of a module beyond which it consists of unrolled tiles, on which further passes take seconds and find nothing."""


class Effort(enum.StrEnum):
    """How much time LLVM's passes may take."""

    QUICK = "quick"  # a third of the time; code is a few per cent slower where a kernel is short
    FULL = "full"


@cache
def initialize_llvm() -> None:
    """Registers every target with LLVM; once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@cache
def target_machine(target: Target) -> llvm.TargetMachine:
    """The LLVM code generator for ``target``; position-independent code.

    Raises:
        IngotError: INVALID_TARGET, LLVM does not know the triple.
    """
    initialize_llvm()
    try:
        backend = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            f"LLVM has no code generator for {target.triple!r}: {error}",
            field="target",
            received=target.triple,
        ) from error
    return backend.create_target_machine(
        cpu=target.cpu,
        features=",".join((*_assumed(target), *target.features)),
        opt=3,
        reloc="pic",
        codemodel="default",
        abiname=_ABI.get(target.architecture, ""),
    )


def _assumed(target: Target) -> tuple[str, ...]:
    """Features that nobody needs to ask for; those of the target come after them, and may take one away."""
    architecture = target.architecture
    bare = target.cpu in _BARE.get(architecture, ())
    return tuple(f"+{name}" for name in BASELINE_FEATURES[architecture]) if bare else ()


def compile_ir(text: str, target: Target, effort: Effort = Effort.FULL) -> bytes:
    """The object file of a module given as text.

    Raises:
        IngotError: COMPILER_FAULT, the text is not valid LLVM IR.
    """
    return bytes(target_machine(target).emit_object(_optimized(text, target, effort)))


def assembly(text: str, target: Target) -> str:
    """The assembly of a module given as text, for reading."""
    return str(target_machine(target).emit_assembly(_optimized(text, target)))


def _optimized(text: str, target: Target, effort: Effort = Effort.FULL) -> llvm.ModuleRef:
    """The module after inlining and the simplification of each function.

    The rest of LLVM's own pipeline (vectorising, unrolling of loops whose trip count is not known, passes between functions) takes
    half of its time and makes these modules no faster: loop IR is unrolled and vectorised as its schedule says, and the
    only calls are those of helpers to be inlined.
    """
    machine = target_machine(target)
    module = parse(text)
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    inliner = llvm.create_new_module_pass_manager()
    inliner.add_always_inliner_pass()
    inliner.run(module, builder)
    is_full = effort is Effort.FULL and text.count("\n") <= _MOST_LINES_AT_FULL_EFFORT
    passes = builder.getFunctionPassManager() if is_full else _quick_passes()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module


def _quick_passes() -> llvm.FunctionPassManager:
    passes = llvm.create_new_function_pass_manager()
    for name in _QUICK_PASSES:
        getattr(passes, f"add_{name}_pass")()
    return passes


def parse(text: str) -> llvm.ModuleRef:
    """A verified LLVM module.

    Raises:
        IngotError: COMPILER_FAULT, with LLVM's message.
    """
    initialize_llvm()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise IngotError(ErrorCode.COMPILER_FAULT, f"generated LLVM IR is not valid: {error}") from error
    return module
