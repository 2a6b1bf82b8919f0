"""Whether LLVM can generate code for a target, asked before anything is done for it."""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import dataclass
from functools import cache, lru_cache

from compiler_service.compiler.codegen.toolchain.asking import AskedProcess, answer_lines
from compiler_service.compiler.codegen.toolchain.elf import undefined_symbols
from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.machine import KIND, compile_ir, target_machine
from compiler_service.compiler.codegen.toolchain.zig import zig_target
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cpu_features import BASELINE_FEATURES
from shared_ir.machine.target import PRESETS, Target, parse_target

_UNKNOWN = re.compile(r"'([^']+)' is not a recognized (processor|feature) for this target")
_REFUSAL = re.compile(r"^(?:LLVM ERROR: |error: (?:<unknown>:0:0: )?)(.+)|^(.+) \(ignoring target-abi\)$", re.MULTILINE)
_TIMEOUT_SECONDS = 60.0
_CALLS = "calls "
_CALLED = re.compile(rf"^{_CALLS}(.+)$", re.MULTILINE)
_MOST_CALLS = 4
_MOST_KEPT = 1024
_ACCIDENTS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
"""How others end a process."""
_LLVM = AskedProcess((sys.executable, "-m", __spec__.name), _TIMEOUT_SECONDS)
"""LLVM ignores what it does not know, and ends the process over what it cannot do, and tells nobody but standard error."""
_REMEDY = "`ingot targets` lists the presets; `host` is this machine."
_ARITHMETIC = """
define {type} @of_{name}({type} %a, {type} %b) nounwind {{
  %sum = fadd {type} %a, %b
  %product = fmul {type} %sum, %a
  %quotient = fdiv {type} %product, %b
  %root = call {type} @llvm.sqrt.{name}({type} %quotient)
  %whole = fptosi {type} %root to {whole}
  %result = sitofp {whole} %whole to {type}
  ret {type} %result
}}
declare {type} @llvm.sqrt.{name}({type})
"""
_CONVERSIONS = """
define double @wide(float %a) nounwind {
  %result = fpext float %a to double
  ret double %result
}
define float @narrow(double %a) nounwind {
  %result = fptrunc double %a to float
  ret float %result
}
"""
_TYPES = (("float", "f32", "i32"), ("double", "f64", "i32"), ("<4 x float>", "v4f32", "<4 x i32>"))
_PROBE = _CONVERSIONS + "".join(_ARITHMETIC.format(type=own, name=name, whole=whole) for own, name, whole in _TYPES)
"""What every kernel takes for granted: arithmetic of floats by instructions, and floats where functions of C expect them."""


def require_llvm(target: Target) -> None:
    """Raises IngotError INVALID_TARGET: of a cpu or with features that LLVM does not
    know, without what every library uses, or of a system that nothing is linked for."""
    zig_target(target)
    if _names(target) in _known():
        return
    answer = _ask(*_names(target))
    for word, what in answer.unknown:
        expected = f"a {what} of {target.architecture} by its LLVM name"
        raise _refused(target, f"LLVM knows no {what} {word!r} of {target.architecture}", expected)
    _require_base(target)
    if answer.refusal:
        expected = "instructions for float32 and float64, and the registers that functions of C take them in"
        raise _refused(target, f"no code that works can be generated for this target: {answer.refusal}", expected)
    target_machine(target)


def main() -> None:
    """Generates code for each target that a line describes; what LLVM does not know or cannot do, it prints, and what that code would
    have to call is printed here."""
    answer_lines(_print_what_is_called)


def _print_what_is_called(text: str) -> None:
    if called := undefined_symbols(compile_ir(_PROBE, parse_target(text))):
        print(_CALLS + ", ".join(called[:_MOST_CALLS]))


def _require_base(target: Target) -> None:
    missing = sorted(set(BASELINE_FEATURES[target.architecture]) - target.required_features)
    if missing:
        base = ", ".join(BASELINE_FEATURES[target.architecture])
        message = (
            f"without {', '.join(missing)} no code works: the C parts of a library for {target.architecture} use {base}"
        )
        raise _refused(target, message, f"a target with {base}")


def _refused(target: Target, message: str, expected: str) -> IngotError:
    received = str(target)
    return IngotError(
        ErrorCode.INVALID_TARGET, message, field="target", expected=expected, received=received, remedy=_REMEDY
    )


def _names(target: Target) -> tuple[str, str, tuple[str, ...]]:
    return target.triple, target.cpu, target.features


@cache
def _known() -> frozenset[tuple[str, str, tuple[str, ...]]]:
    """What tests compile for, and what LLVM itself says of this machine."""
    return frozenset(_names(target) for target in (host_target(), *(t for t, _ in PRESETS.values())))


@dataclass(frozen=True)
class _Answer:
    """Words that LLVM does not know, each with ``processor`` or ``feature``, and why no code comes of the others, if none does."""

    unknown: tuple[tuple[str, str], ...]
    refusal: str


@lru_cache(maxsize=_MOST_KEPT)
def _ask(triple: str, cpu: str, features: tuple[str, ...]) -> _Answer:
    flags = f" -mattr={','.join(features)}" if features else ""
    try:
        status, said = _LLVM.ask(f"{KIND} -mtriple={triple} -mcpu={cpu}{flags}")
    except OSError as error:
        raise _unanswered(triple, type(error).__name__) from error
    unknown = tuple(dict.fromkeys(_UNKNOWN.findall(said)))
    refusal = _refusal(status, said)
    if status is not None and (status in _ACCIDENTS or not (unknown or refusal)):
        raise _unanswered(triple, f"exit status {status}")
    return _Answer(unknown, refusal)


def _unanswered(triple: str, reason: str) -> IngotError:
    """What happened to the process, which is not remembered."""
    return IngotError(
        ErrorCode.UNAVAILABLE,
        f"LLVM has not said whether it can generate code for {triple}",
        received=reason,
        remedy="Try again: perhaps the machine is busy, or had no memory.",
    )


def _refusal(status: int | None, said: str) -> str:
    if refused := _REFUSAL.search(said):
        return f"LLVM says: {refused[1] or refused[2]}"
    if called := _CALLED.search(said):
        return f"it has no instructions for what {called[1].strip()} do"
    return f"LLVM is ended by signal {-status}" if status is not None and status < 0 else ""


if __name__ == "__main__":
    main()
