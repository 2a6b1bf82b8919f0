"""Whether LLVM can generate code for a target, asked before anything is done for it."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.machine import KIND, target_machine
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, Target, parse_target

_UNKNOWN = re.compile(r"'([^']+)' is not a recognized (processor|feature) for this target")
_TIMEOUT_SECONDS = 60.0


def require_llvm(target: Target) -> None:
    """Raises IngotError INVALID_TARGET: of a kind that there is no code generator for, or of a cpu or with features that LLVM does not
    know."""
    if target.kind != KIND:
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            f"there is no code generator for targets of kind {target.kind!r}",
            field="target",
            expected=KIND,
            received=target.kind,
        )
    if _names(target) in _known():
        return
    for word, what in _unknown_words(*_names(target)):
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            f"LLVM knows no {what} {word!r} of {target.architecture}",
            field="target",
            expected=f"a {what} of {target.architecture} by its LLVM name",
            received=str(target),
            remedy="`ingot targets` lists the presets; `host` is this machine.",
        )
    target_machine(target)


def main() -> None:
    """Makes the code generator of each target that an argument describes; what LLVM does not know, it prints."""
    for text in sys.argv[1:]:
        target_machine(parse_target(text))


def _names(target: Target) -> tuple[str, str, tuple[str, ...]]:
    return target.triple, target.cpu, target.features


@cache
def _known() -> frozenset[tuple[str, str, tuple[str, ...]]]:
    """What tests compile for, and what LLVM itself says of this machine."""
    return frozenset(_names(target) for target in (host_target(), *(t for t, _ in PRESETS.values())))


@cache
def _unknown_words(triple: str, cpu: str, features: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Each with ``processor`` or ``feature``.

    LLVM ignores such words, and tells nobody but standard error: hence a process of its own.
    """
    flags = f" -mattr={','.join(features)}" if features else ""
    command = [sys.executable, "-m", __name__, f"{KIND} -mtriple={triple} -mcpu={cpu}{flags}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS)
    return tuple(dict.fromkeys(_UNKNOWN.findall(done.stderr)))


if __name__ == "__main__":
    main()
