"""Default schedules, compiled: the same results as numpy, and no byte read or written beyond a buffer."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.packing import preparation_of
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.kernel.coalesce import coalesce
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.tensor import Tensor, topological
from shared_ir.arrays import storage_dtype
from shared_ir.expr.dim import dim_symbols
from shared_ir.expr.dim import evaluate as evaluate_dim
from shared_ir.machine.target import Target, parse_target
from tests.compiler_service.compiler.codegen.emulated import EmulatedKernel
from tests.compiler_service.compiler.schedule.kernels import arguments_of, random_feeds
from tests.compiler_service.compiler.schedule.test_default_schedules import CASES

Array = np.ndarray[Any, Any]
LIBC = ctypes.CDLL(None, use_errno=True)


class GuardedMemory:
    """Copies of arrays that end where an inaccessible page begins."""

    def __init__(self) -> None:
        self._regions: list[tuple[mmap.mmap, int]] = []

    def copy(self, array: Array) -> Array:
        pages = -(-max(array.nbytes, 1) // mmap.PAGESIZE)
        memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        end = base + pages * mmap.PAGESIZE
        if LIBC.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0):
            pytest.fail("mprotect refused")
        self._regions.append((memory, end))
        tail = memoryview((ctypes.c_byte * array.nbytes).from_address(end - array.nbytes))
        held: Array = np.frombuffer(tail, array.dtype).reshape(array.shape)
        held[...] = array
        return held

    def release(self) -> None:
        for _, end in self._regions:
            LIBC.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 3)


def check(case: str, target: Target, build: Callable[..., Any]) -> None:
    tensor, packed, sizes = CASES[case]
    output, placeholders = coalesce(tensor)
    constants = frozenset(new for old, new in placeholders.items() if old.name in packed)
    schedule = default_schedule(output, constants, target)
    arguments, names = arguments_of(output), stage_names(output)
    parameters = sorted(dim_symbols(d for t in topological(output) for d in t.shape))
    function = passes.run(lower("kernel", output, arguments, parameters, schedule, target))
    kernel = build(function, target)
    for symbols in sizes:
        memory = GuardedMemory()
        feeds = random_feeds(output, symbols)
        arrays = [np.ascontiguousarray(preparation_of(schedule, names[t], t).apply(feeds[t], t)) for t in arguments]
        result = np.zeros(_extents(output, symbols), storage_dtype(output.dtype))
        guarded = [memory.copy(a) for a in (*arrays, result)]
        kernel(guarded, {p: symbols[p] for p in parameters})
        (wanted,) = evaluate([output], feeds, symbols)
        np.testing.assert_allclose(guarded[-1], wanted, rtol=2e-4, atol=2e-5)
        memory.release()


def _extents(tensor: Tensor, symbols: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate_dim(d, symbols) for d in tensor.shape)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["host", "x86-64-v3", "x86-64-v2"])
def test_compiled_schedules_compute_the_expression(name: str, case: str, host: Target) -> None:
    if name != "host" and host.architecture != "x86_64":
        pytest.skip("runs code of an older x86-64 level")
    check(case, host if name == "host" else parse_target(name), JitKernel)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["aarch64/generic", "armv7/generic", "riscv64/generic"])
def test_compiled_schedules_on_other_machines(name: str, case: str, tmp_path: Path) -> None:
    check(case, parse_target(name), partial(EmulatedKernel, folder=tmp_path))
