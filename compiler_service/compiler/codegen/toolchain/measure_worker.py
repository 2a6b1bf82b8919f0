"""The child that runs a kernel for timing: generated code that has not been tried yet must not run in the compiler's process.

One request on standard input (a frame: sizes of the buffers, symbols, tasks, scratch; the object), one answer on standard output.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
import sys
import time
from typing import Any

import numpy as np

from compiler_service.compiler.codegen.toolchain.frames import read_frame, write_frame
from compiler_service.compiler.codegen.toolchain.jit import LoadedObject

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS)
_GOES_ON = ctypes.c_int32(0)
_ALIGNMENT_BYTES = 64
_ROUND_SECONDS = 0.004
_ROUNDS = 5
_MOST_MEMORY_BYTES = 8 << 30


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    frame = read_frame(sys.stdin.buffer.read)
    if frame is None:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    write_frame(replies, measure(*frame))


def measure(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """``{"seconds": median of the rounds, "spread": max - min}``"""
    loaded = LoadedObject(data, [request["symbol"]])
    call = _SIGNATURE(loaded.address(request["symbol"]))
    buffers = [_aligned(size, fill=True) for size in request["sizes"]]
    scratch = _aligned(request["scratch"], fill=False)
    pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
    symbols = (ctypes.c_int64 * len(request["symbols"]))(*request["symbols"])

    memory = ctypes.addressof(pointers), ctypes.addressof(symbols)
    arguments = *memory, 0, request["tasks"], scratch.ctypes.data, ctypes.addressof(_GOES_ON)

    def run(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            call(*arguments)
        return (time.perf_counter() - start) / times

    once = min(run(1), run(1))
    times = max(1, int(_ROUND_SECONDS / max(once, 1e-7)))
    rounds = [run(times) for _ in range(_ROUNDS)]
    return {"seconds": statistics.median(rounds), "spread": max(rounds) - min(rounds)}


def _aligned(size: int, fill: bool) -> np.ndarray:
    """``size`` bytes at a 64-byte boundary; small floats, so that nothing is a denormal or overflows."""
    memory = np.zeros(size + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    view = memory[start : start + size]
    if fill and size >= 4:
        floats = view[: size // 4 * 4].view(np.float32)
        floats[:] = np.resize(np.linspace(-1.0, 1.0, 1009, dtype=np.float32), floats.size)
    return view


if __name__ == "__main__":
    main()
