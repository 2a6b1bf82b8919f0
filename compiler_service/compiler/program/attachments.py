"""Files of an artifact beside its library: bundles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from compiler_service.compiler.codegen.toolchain.bundle import BundleKind, link_bundle
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.plan.program import Call, Plan, walk_steps


def link_attachments(
    objects: Mapping[str, bytes],
    plan: Plan,
    weights: memoryview | Path,
    target: Target,
    bundle: BundleKind | Literal[""],
) -> dict[str, bytes]:
    """The bundle that was asked for, by its file name in the artifact.

    Raises:
        IngotError: UNSUPPORTED_OPERATOR, the model has steps that are no native code.
    """
    if not bundle:
        return {}
    call = next((step for step in walk_steps(plan.steps) if isinstance(step, Call)), None)
    if call is not None:
        raise IngotError(
            ErrorCode.UNSUPPORTED_OPERATOR,
            "a bundle is native code alone, and the model looks into strings, sequences or optionals",
            node=", ".join(call.nodes),
            expected="operators on numbers, or that move and compare strings",
            received=call.function,
            remedy="Compile without a bundle and load the artifact with the runtime.",
        )
    name = "program" if bundle == "executable" else "bundle.so"
    return {name: link_bundle(objects, weights, target, bundle)}
