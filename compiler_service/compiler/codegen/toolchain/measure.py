"""Timing of one compiled kernel in a child process with limits on time and memory."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from compiler_service.compiler.codegen.toolchain.frames import read_frame, write_frame
from shared_ir.errors import ErrorCode, IngotError

_COMMAND = (sys.executable, "-m", "compiler_service.compiler.codegen.toolchain.measure_worker")


@dataclass(frozen=True)
class Trial:
    """A kernel to time.

    Attributes:
        symbol: the exported function.
        sizes: bytes of each buffer.
        symbols: values of its int64 parameters.
        scratch: bytes of scratch memory.
    """

    symbol: str
    data: bytes
    sizes: Sequence[int]
    symbols: Sequence[int]
    tasks: int
    scratch: int


def measure_kernel(trial: Trial, timeout: float = 20.0) -> tuple[float, float]:
    """(median seconds of one run on one thread, spread).

    Raises:
        IngotError: COMPILER_FAULT, the child crashed; DEADLINE_EXCEEDED, it took longer than ``timeout`` seconds.
    """
    request = io.BytesIO()
    header = {
        "symbol": trial.symbol,
        "sizes": list(trial.sizes),
        "symbols": list(trial.symbols),
        "tasks": trial.tasks,
        "scratch": trial.scratch,
    }
    write_frame(request, header, trial.data)
    try:
        child = subprocess.run(_COMMAND, input=request.getvalue(), capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise IngotError(
            ErrorCode.DEADLINE_EXCEEDED, f"kernel {trial.symbol} ran longer than {timeout:g} s while being timed"
        ) from error
    frame = read_frame(io.BytesIO(child.stdout).read)
    if frame is None:
        raise IngotError(
            ErrorCode.COMPILER_FAULT,
            f"kernel {trial.symbol} brought down the process that timed it (exit status {child.returncode})",
            received=child.stderr[-400:].decode(errors="replace"),
        )
    return float(frame[0]["seconds"]), float(frame[0]["spread"])
