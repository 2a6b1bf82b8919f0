"""What shows a fault of the compiler again: the program as it was before the pass that failed, as text that ``opt`` runs."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from compiler_service.compiler.version import compiler_version
from shared_ir.errors import ErrorCode, IngotError

_WITHOUT = "Until it is mended, compile it in Python with the option disabled_passes=[{0!r}]."
_NEEDED = "No option leaves this pass out."
_PARTS = ("llvmlite", "numpy", "onnx")


class PassFaultError(IngotError):
    """A pass broke.

    Attributes:
        reproducer: a text file; ``python -m compiler_service.compiler.opt``, as its first lines say, fails on it in the same way.
            Weights are told by digest and made up anew.
    """

    reproducer: str = ""


def pass_fault(
    name: str, called: str, done: list[str], program: str, error: Exception, *, optional: bool = False
) -> PassFaultError:
    """The error of pass ``name``, ``called`` so with its options, that broke with ``error`` on ``program``, after the passes ``done``.

    Args:
        optional: the option ``disabled_passes`` takes its name. Passes that every program needs, and those of loops, stay.
    """
    before = f" after {', '.join(done)}" if done else ""
    fault = PassFaultError(
        ErrorCode.COMPILER_FAULT,
        f"pass {name!r} failed{before}: {type(error).__name__}: {error}",
        field=name,
        remedy=f"Report the model. {_WITHOUT.format(name) if optional else _NEEDED}",
    )
    said = " ".join(f"{fault.message}".split())
    fault.reproducer = (
        f"# A fault of the compiler: {said}\n"
        f"# {versions()}\n"
        f"# python -m compiler_service.compiler.opt -p '{called}' THIS_FILE\n"
        f"{program}"
    )
    return fault


def versions() -> str:
    """Of the compiler and of what it stands on, in one line."""
    found = [f"compiler {compiler_version()}"]
    for name in _PARTS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join([*found, f"Python {platform.python_version()} on {platform.machine()}"])
