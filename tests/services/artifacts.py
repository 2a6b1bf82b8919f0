"""A small artifact for tests of storage; its library is not loadable code."""

from __future__ import annotations

from typing import Any

from shared_ir.artifact.value import ABI_VERSION, CompiledArtifact, Manifest
from shared_ir.dtype import DType
from shared_ir.expr.dim import symbol
from shared_ir.plan.program import BufferSpec, Plan, Storage, SymbolSource, TensorSpec


def toy_artifact(name: str = "toy", weights: Any = b"w" * 256, **manifest: Any) -> CompiledArtifact:
    batch = symbol("batch")
    tensor = TensorSpec("x", DType.FLOAT32, (batch, 4))
    plan = Plan(
        name=name,
        inputs=(tensor,),
        outputs=(tensor,),
        symbols=(SymbolSource("batch", 0, 0),),
        constraints=(),
        buffers=(BufferSpec(Storage.INPUT, DType.FLOAT32, (batch, 4), batch * 16),),
        kernels=(),
        steps=(),
    )
    fields: dict[str, Any] = {
        "name": name,
        "key": "ab" * 32,
        "abi_version": ABI_VERSION,
        "compiler_version": "0.1.0",
        "triple": "x86_64-linux-gnu",
        "cpu": "x86-64-v3",
        "features": ("+avx2", "+fma"),
        "min_glibc": "2.17",
        "model_sha256": "cd" * 32,
        "options": {"opt_level": 3},
    }
    return CompiledArtifact(
        Manifest(**fields | manifest), plan, b"\x7fELF" + name.encode() * 50, weights, {"stages": []}
    )
