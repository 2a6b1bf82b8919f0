"""Measuring servers in processes of their own, and candidates written in C for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.zig import compile_c
from compiler_service.compiler.tune.measuring.trial import Content, Trial, TrialBuffer, TrialLaunch
from shared_ir.artifact.signature import SigningKey, public_pem
from shared_ir.machine.target import Target
from tests.house.test_imports import ROOT

HEAD = """
#include <stddef.h>
#include <stdint.h>
typedef void *const *buffers_t;
#define KERNEL(name) void name(buffers_t b, const int64_t *s, int64_t begin, int64_t end, void *scratch, const volatile int32_t *stop)
"""
DOUBLES = """
KERNEL(k) {
  const float *x = b[0]; float *y = b[1];
  (void)s; (void)scratch; (void)stop;
  for (int64_t i = begin; i < end; i++) y[i] = 2.0f * x[i];
}
"""
ADDS = "KERNEL(k) { float *y = b[1]; for (int64_t i = begin; i < end; i++) y[i] += 1.0f; }"
CRASHES = "KERNEL(k) { *(volatile int *)64 = 1; }"
LOOPS = "KERNEL(k) { volatile uint32_t turn = 0; for (;;) turn++; }"
SYSTEM_CALL = """
static long ask(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d; register long r8 __asm__("r8") = e; register long r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
"""
EATS = f"""{SYSTEM_CALL}
KERNEL(k) {{
  const long gigabyte = 1L << 30;
  long count = 0;
  while (count < 64) {{
    long at = ask(9, 0, gigabyte, 3, 0x22, -1, 0);
    if (at < 0 && at > -4096) break;
    count++;
  }}
  *(float *)b[1] = (float)count;
}}
"""
FORKS = f"{SYSTEM_CALL}\nKERNEL(k) {{ ask(57, 0, 0, 0, 0, 0, 0); for (volatile int i = 0;; i++) {{}} }}"
ASKS_FOR_MORE = "void *malloc(size_t); KERNEL(k) { *(void **)b[1] = malloc(4); }"
COUNT = 4096
INPUT = np.linspace(-1, 1, COUNT, dtype=np.float32)


def candidate(text: str = DOUBLES, target: Target | None = None, copies: int = 1) -> Trial:
    """``k`` of C code; two buffers of :data:`COUNT` floats, the second one a result."""
    own = target or host_target()
    buffers = (
        TrialBuffer(INPUT.nbytes, Content.of(INPUT.tobytes()), copies),
        TrialBuffer(INPUT.nbytes, is_result=True),
    )
    return Trial(own, (compile_c(HEAD + text, own),), (TrialLaunch("k", (0, 1), (), COUNT, 64),), buffers)


@dataclass
class LocalBoard:
    """A running server."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def await_work(self) -> None:
        """Until a trial runs; for a minute at most."""
        until = time.monotonic() + 60
        while not self.children() and time.monotonic() < until:
            time.sleep(0.002)

    def children(self) -> list[int]:
        """Processes of trials that run, or that nobody has taken leave of."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                found += [int(status.parent.name)] if parent == self.process.pid else []
        return found


@contextlib.contextmanager
def board(folder: Path, key: SigningKey, *options: str) -> Iterator[LocalBoard]:
    """``ingot device serve``, which trusts ``key``."""
    trusted = folder / f"{key.key_id}.pem"
    trusted.write_bytes(public_pem(key.public))
    command = [sys.executable, "-m", "ingot", "device", "serve", "--json", "--trust", str(trusted)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "INGOT_HOME": str(folder)}
    written = folder / f"board-{len(list(folder.iterdir()))}.log"
    with written.open("w") as log:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env=environment,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server has not started"
        yield LocalBoard(str(json.loads(line)["address"]), process, written)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def floats(results: Sequence[bytes]) -> np.ndarray[Any, Any]:
    return np.frombuffer(results[0], np.float32)
