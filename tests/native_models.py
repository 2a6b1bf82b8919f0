"""A small hand-written model for tests of the native runtime: kernels in C, a plan with symbols, no compiler passes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler_service.compiler.codegen.entry.module import emit_entry
from compiler_service.compiler.codegen.toolchain.link import link_library
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from compiler_service.compiler.codegen.toolchain.zig import min_glibc, run_zig, zig_target
from shared_ir.artifact.value import ABI_VERSION, CompiledArtifact, Manifest
from shared_ir.dtype import DType
from shared_ir.expr.dim import parse_dim, symbol
from shared_ir.machine.target import Target, parse_target
from shared_ir.plan.program import BufferSpec, Constraint, KernelSpec, Launch, Plan, Storage, SymbolSource, TensorSpec

COMPILER_VERSION = "0.1.0-test"
MAX_BATCH = 500
INNER, WIDTH = 12, 5
KERNELS = """
#include <stdint.h>
typedef void *const *buffers_t;
void k_matmul(buffers_t b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int *stop) {
  (void)stop;
  const float *x = b[0], *w = b[1]; float *y = b[2], *row = scratch; /* task: one row; the row is built in scratch */
  for (int64_t i = begin; i < end; i++) {
    for (int64_t n = 0; n < s[1]; n++) row[n] = 0;
    for (int64_t k = 0; k < s[0]; k++) for (int64_t n = 0; n < s[1]; n++) row[n] += x[i * s[0] + k] * w[k * s[1] + n];
    for (int64_t n = 0; n < s[1]; n++) y[i * s[1] + n] = row[n];
  }
}
void k_add(buffers_t b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int *stop) {
  (void)stop;
  const float *x = b[0], *r = b[1]; float *y = b[2]; (void)scratch; /* task: 16 of s[0] elements */
  for (int64_t i = begin * 16; i < end * 16 && i < s[0]; i++) y[i] = x[i] + r[i];
}
void k_pairs(buffers_t b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int *stop) {
  (void)stop;
  const float *x = b[0]; float *y = b[1]; (void)scratch; /* task: rows 2i and 2i+1 of s[0] rows of s[1] */
  for (int64_t i = begin; i < end; i++) for (int64_t n = 0; n < s[1]; n++)
    y[i * s[1] + n] = x[2 * i * s[1] + n] + (2 * i + 1 < s[0] ? x[(2 * i + 1) * s[1] + n] : 0.0f);
}
"""
KERNEL_SYMBOLS = ("k_matmul", "k_add", "k_pairs")


def toy_plan() -> Plan:
    """``sum = x @ w + r`` and ``pairs = sum[0::2] + sum[1::2]`` for float32 x[batch, 12], r[batch, 5]."""
    batch, f32 = symbol("batch"), DType.FLOAT32
    rows, half = (batch, WIDTH), parse_dim("(batch + 1) // 2")
    size = batch * (WIDTH * 4)
    tensors = {"x": TensorSpec("x", f32, (batch, INNER)), "r": TensorSpec("r", f32, rows)}
    return Plan(
        name="toy",
        inputs=tuple(tensors.values()),
        outputs=(TensorSpec("sum", f32, rows), TensorSpec("pairs", f32, (half, WIDTH))),
        symbols=(SymbolSource("batch", 0, 0),),
        constraints=(Constraint(parse_dim(f"{MAX_BATCH} - batch"), 0, "rows left of the largest batch", lower=True),),
        buffers=(
            BufferSpec(Storage.INPUT, f32, (batch, INNER), batch * (INNER * 4), index=0, name="x"),
            BufferSpec(Storage.INPUT, f32, rows, size, index=1, name="r"),
            BufferSpec(Storage.WEIGHT, f32, (INNER, WIDTH), INNER * WIDTH * 4, offset=64, name="w"),
            BufferSpec(Storage.ARENA, f32, rows, size, offset=parse_dim("(batch + 15) // 16 * 64"), name="product"),
            BufferSpec(Storage.OUTPUT, f32, rows, size, index=0, name="sum"),
            BufferSpec(Storage.OUTPUT, f32, (half, WIDTH), half * (WIDTH * 4), index=1, name="pairs"),
        ),
        kernels=(
            KernelSpec("matmul", ("k", "n"), scratch=WIDTH * 4),
            KernelSpec("add", ("n",)),
            KernelSpec("pairs", ("rows", "n")),
        ),
        steps=(
            Launch(0, (0, 2, 3), (INNER, WIDTH), batch, batch * (2 * INNER * WIDTH), size, ("MatMul_0",), "x @ w"),
            Launch(1, (3, 1, 4), (batch * WIDTH,), parse_dim(f"(batch * {WIDTH} + 15) // 16"), nodes=("Add_0",)),
            Launch(2, (4, 5), (batch, WIDTH), half, nodes=("Pairs_0",)),
        ),
        arena_size=parse_dim(f"(batch + 15) // 16 * 64 + (batch * {WIDTH * 4} + 63) // 64 * 64"),
        weights_size=64 + INNER * WIDTH * 4 + 16,
    )


def toy_weights() -> bytes:
    matrix = np.random.default_rng(0).standard_normal((INNER, WIDTH), dtype=np.float32)
    return b"\1" * 64 + matrix.tobytes() + b"\2" * 16


def toy_feeds(batch: int, seed: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((batch, INNER), dtype=np.float32),
        "r": rng.standard_normal((batch, WIDTH), dtype=np.float32),
    }


def toy_reference(feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The same in float64; compare with a tolerance."""
    weights = np.frombuffer(toy_weights(), np.float32, INNER * WIDTH, 64).reshape(INNER, WIDTH)
    total = feeds["x"].astype(np.float64) @ weights + feeds["r"]
    odd = np.zeros_like(total[0::2])
    odd[: len(total[1::2])] = total[1::2]
    return {"sum": total, "pairs": total[0::2] + odd}


def compile_c(source: str, target: Target, *, static: bool = False) -> bytes:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "kernels.c").write_text(source)
        run_zig(
            ["cc", *zig_target(target, static=static), "-O2", "-g0", "-fPIC", "-c", "kernels.c", "-o", "kernels.o"],
            Path(name),
        )
        return (Path(name) / "kernels.o").read_bytes()


@dataclass(frozen=True)
class NativeModel:
    """Objects of a model for one target, before linking."""

    plan: Plan
    target: Target
    objects: dict[str, bytes]
    weights: bytes

    def artifact(self, **manifest: Any) -> CompiledArtifact:
        fields: dict[str, Any] = {
            "name": self.plan.name,
            "key": "ab" * 32,
            "abi_version": ABI_VERSION,
            "compiler_version": COMPILER_VERSION,
            "triple": self.target.triple,
            "cpu": self.target.cpu,
            "features": self.target.features,
            "min_glibc": min_glibc(self.target),
        }
        library = link_library(self.objects, self.target)
        return CompiledArtifact(Manifest(**fields | manifest), self.plan, library, self.weights)


def build_model(
    target_text: str = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64",
    plan: Plan | None = None,
    kernels: str = KERNELS,
    symbols: tuple[str, ...] = KERNEL_SYMBOLS,
) -> NativeModel:
    """The toy model, or ``plan`` with other kernels, compiled for a target."""
    target, plan = parse_target(target_text), plan or toy_plan()
    objects = {
        "entry": compile_ir(emit_entry(plan, target, symbols, COMPILER_VERSION), target),
        "kernels": compile_c(kernels, target),
    }
    return NativeModel(plan, target, objects, toy_weights())
