"""What became of the comparison of a compiled model with another implementation, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.cli.output import Output
from ingot.records import Verification


def verdict(found: Verification | None) -> str:
    """Whether the answers of a compiled model were compared with those of another implementation, and why not."""
    if found is None:
        return "unknown"
    if not found.is_verified:
        return f"not verified: {found.reason or found.state}"
    worst = max((own.max_rel_error for own in found.outputs), default=0.0)
    where = f", under {found.emulator}" if found.emulator else ""
    return f"within {worst:.1e} of {found.oracle}{where}"


def speed(found: Verification | None) -> str:
    """Beside ONNX Runtime on one thread, where that was measured."""
    if found is None or not found.ratio:
        return ""
    return f"{found.ratio:.2f} times as fast" if found.ratio >= 1 else f"{1 / found.ratio:.2f} times as slow"


def show_verification(targets: Sequence[tuple[str, Verification | None]], output: Output) -> None:
    """What became of the comparison for each target, and the figures of each output that was compared."""
    if targets:
        rows = [(target, ", ".join(filter(None, (verdict(found), speed(found))))) for target, found in targets]
        output.table(("target", "answers"), rows)
    show_outputs(targets, output)


def show_outputs(targets: Sequence[tuple[str, Verification | None]], output: Output) -> None:
    """The figures of each output; nothing where none were compared."""
    rows = [
        (target, own.name, f"{own.max_abs_error:.2e}", f"{own.max_rel_error:.2e}", f"{found.tolerance:.0e}")
        for target, found in targets
        if found is not None
        for own in found.outputs
    ]
    if rows:
        output.some(("target", "output", ">largest error", ">relative", ">allowed"), rows)
