"""Kernels for other machines, run under Debian's ``qemu-user-static``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.emit.kernel import emit_kernel
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from compiler_service.compiler.codegen.toolchain.zig import run_zig, zig_target
from compiler_service.compiler.loop_ir.ir import Function
from shared_ir.expr.dim import evaluate
from shared_ir.machine.target import Target

EMULATORS = {
    "aarch64": ("qemu-aarch64-static", "max"),
    "armv7": ("qemu-arm-static", "max"),
    "riscv64": ("qemu-riscv64-static", "rv64,v=true,vext_spec=v1.0"),
}

# argv: file, tasks, symbols; the file is: buffer count, byte counts, bytes. The bytes are written back.
DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void kernel(void *const *, const int64_t *, int64_t, int64_t, void *, const volatile int32_t *);
static int64_t sizes[256];
static void *buffers[256];
static const volatile int32_t stop;
static char scratch[1 << 20] __attribute__((aligned(64)));
int main(int argc, char **argv) {
  FILE *f = fopen(argv[1], "r+b");
  int64_t count, symbols[16];
  for (int i = 3; i < argc && i < 19; i++) symbols[i - 3] = atoll(argv[i]);
  if (!f || fread(&count, 8, 1, f) != 1 || fread(sizes, 8, count, f) != (size_t)count) return 1;
  long start = ftell(f);
  for (int64_t i = 0; i < count; i++) {
    buffers[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
    if (fread(buffers[i], 1, sizes[i], f) != (size_t)sizes[i]) return 2;
  }
  kernel(buffers, symbols, 0, atoll(argv[2]), scratch, &stop);
  fseek(f, start, SEEK_SET);
  for (int64_t i = 0; i < count; i++) fwrite(buffers[i], 1, sizes[i], f);
  return fclose(f);
}
"""


class EmulatedKernel:
    """``kernel(arrays, {symbol: value})``: like a JitKernel, on an emulated machine."""

    def __init__(self, function: Function, target: Target, folder: Path) -> None:
        self._function = function
        self._folder = folder
        name, cpu = EMULATORS[target.architecture]
        emulator = shutil.which(name)
        if emulator is None:
            pytest.skip(f"{name} is not installed (Debian package qemu-user-static)")
        self._command = [emulator, "-cpu", cpu, str(folder / "kernel")]
        (folder / "kernel.o").write_bytes(compile_ir(emit_kernel(function, target, "kernel"), target))
        (folder / "driver.c").write_text(DRIVER)
        run_zig(["cc", *zig_target(target, static=True), "-O1", "-o", "kernel", "driver.c", "kernel.o"], folder)

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]], symbols: Mapping[str, int]) -> None:
        exchange = self._folder / "exchange"
        header = np.array([len(arrays), *(a.nbytes for a in arrays)], np.int64).tobytes()
        exchange.write_bytes(header + b"".join(a.tobytes() for a in arrays))
        tasks = evaluate(self._function.tasks, symbols)
        values = [str(symbols[s.name]) for s in self._function.symbols]
        subprocess.run([*self._command, str(exchange), str(tasks), *values], check=True, timeout=240)
        data = exchange.read_bytes()[len(header) :]
        for array in arrays:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data[: array.nbytes], np.uint8)
            data = data[array.nbytes :]
