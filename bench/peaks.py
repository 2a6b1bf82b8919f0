"""What this machine can do: the peak of fused multiply-adds, and the bandwidth of every cache level and of memory.

Measured with loops in LLVM IR, built by the compiler's own code generator for the host:

- ``fma``: 12 independent accumulators, one vector ``fma`` each per turn: enough for 2 units of latency 4 to 6, few enough
  for 16 registers;
- ``read``: 8 vector loads per turn, combined with xor;
- ``stream``: 8 times load, add a constant, store elsewhere; bytes read and bytes written both count. This is the traffic of
  an elementwise kernel.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from compiler_service.compiler.codegen.toolchain.host import host_target
from compiler_service.compiler.codegen.toolchain.jit import LoadedObject
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from runtime_service.arrays import aligned_bytes
from shared_ir.machine.target import Target

LEVELS = ("L1", "L2", "L3", "memory")

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS)
_GOES_ON = ctypes.c_int32(0)
_ACCUMULATORS = 12
_UNROLL = 8
_TRIALS = 30
_TRIAL_SECONDS = 0.004  # shorter than a time slice of the scheduler: some trials run undisturbed on a busy machine too
_LEAST_MEMORY, _MOST_MEMORY = 128 << 20, 1 << 30
_PAGE = 4096


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second of all threads together, in one level."""

    read: float
    stream: float

    @property
    def roof(self) -> float:
        return max(self.read, self.stream)

    def or_higher(self, other: Bandwidth) -> Bandwidth:
        return Bandwidth(max(self.read, other.read), max(self.stream, other.stream))


@dataclass(frozen=True)
class Peaks:
    """The roofs of one machine with ``threads`` threads.

    Attributes:
        flops: float32 operations per second; a fused multiply-add is two.
        bandwidth: by the names of :data:`LEVELS`; a level that the machine does not have is missing.
        capacity: bytes of each level that ``threads`` threads have together; memory has no bound.
    """

    threads: int
    flops: float
    bandwidth: Mapping[str, Bandwidth]
    capacity: Mapping[str, float]

    def level(self, size: float) -> str:
        """The fastest level that holds ``size`` bytes."""
        return next((name for name in LEVELS if name in self.capacity and size <= self.capacity[name]), LEVELS[-1])

    def or_higher(self, other: Peaks) -> Peaks:
        """The higher of each roof of two measurements of one machine: load and neighbours only ever lower one."""
        bandwidth = {name: mine.or_higher(other.bandwidth[name]) for name, mine in self.bandwidth.items()}
        return replace(self, flops=max(self.flops, other.flops), bandwidth=bandwidth)


def measure_peaks(threads: int = 1) -> Peaks:
    """Best of several trials for each roof; takes about two seconds."""
    target = host_target()
    loops = _Loops(target, threads)
    try:
        capacity = {"L1": target.l1 * threads, "L2": target.l2 * threads, "L3": target.l3, "memory": math.inf}
        capacity = {name: size for name, size in capacity.items() if size}
        sizes = _buffer_sizes(target, threads)
        bandwidth = {name: Bandwidth(loops.read(size), loops.stream(size)) for name, size in sizes.items()}
        return Peaks(threads, loops.flops(), bandwidth, capacity)
    finally:
        loops.close()


def _buffer_sizes(target: Target, threads: int) -> dict[str, int]:
    """Bytes per thread that live in each level and clearly not in the one above it."""
    last = target.l3 or target.l2 * threads
    memory = min(max(4 * last, _LEAST_MEMORY), _MOST_MEMORY) // threads
    sizes = {"L1": target.l1 // 2, "L2": (target.l1 + target.l2) // 2}
    if target.l3:
        sizes["L3"] = max(2 * target.l2, target.l3 // 4 // threads)
    return sizes | {"memory": memory}


class _Loops:
    """The loops, and memory for each thread to run them on."""

    def __init__(self, target: Target, threads: int) -> None:
        self._lanes = target.vector_bits // 32
        names = ("fma", "read", "stream")
        text = "\n".join((_fma(self._lanes), _read(self._lanes), _stream(self._lanes)))
        self._loaded = LoadedObject(compile_ir(text, target), names)
        self._functions = {name: _SIGNATURE(self._loaded.address(name)) for name in names}
        self._threads = threads

    def flops(self) -> float:
        return self._rate("fma", _PAGE, 1, 2 * _ACCUMULATORS * self._lanes, turns=10_000)

    def read(self, size: int) -> float:
        return self._rate("read", size, self._turns(size), self._turns(size) * self._turn_bytes)

    def stream(self, size: int) -> float:
        turns = self._turns(size // 2)
        return self._rate("stream", size, turns, 2 * turns * self._turn_bytes)

    def close(self) -> None:
        self._loaded.close()

    @property
    def _turn_bytes(self) -> int:
        return _UNROLL * self._lanes * 4

    def _turns(self, size: int) -> int:
        return max(1, size // self._turn_bytes)

    def _rate(self, name: str, size: int, inner: int, work: int, turns: int = 1) -> float:
        """Work per second of all threads; ``work`` is what one of the ``turns`` does."""
        function = self._functions[name]
        half = inner * self._turn_bytes
        calls = [_Call(function, size, inner, half) for _ in range(self._threads)]
        calls[0](turns)
        once = max(calls[0](turns) / turns, 1e-9)
        turns = max(turns, math.ceil(_TRIAL_SECONDS / once))
        best = min(_together(calls, turns) for _ in range(_TRIALS))
        return self._threads * turns * work / best


class _Call:
    """One thread's call of a loop; ``call(turns)`` gives its seconds."""

    def __init__(self, function: Callable[..., None], size: int, inner: int, half: int) -> None:
        self._function = function
        self._memory = aligned_bytes(size + _PAGE, _PAGE)
        self._memory.fill(0)
        self._memory[: size // 4 * 4].view(np.float32)[:] = 0.5
        self._buffers = (ctypes.c_void_p * 2)(self._memory.ctypes.data, self._memory.ctypes.data + half)
        self._symbols = (ctypes.c_int64 * 2)(0, inner)
        self._memories = ctypes.addressof(self._buffers), ctypes.addressof(self._symbols)

    def __call__(self, turns: int) -> float:
        self._symbols[0] = turns
        start = time.perf_counter()
        self._function(*self._memories, 0, 1, None, ctypes.addressof(_GOES_ON))
        return time.perf_counter() - start


def _together(calls: list[_Call], turns: int) -> float:
    """Seconds of the slowest of several calls at once, each in a thread of its own (ctypes lets go of the GIL)."""
    if len(calls) == 1:
        return calls[0](turns)
    barrier, seconds = threading.Barrier(len(calls)), [0.0] * len(calls)

    def run(index: int, call: _Call) -> None:
        barrier.wait()
        seconds[index] = call(turns)

    workers = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(seconds)


# -- LLVM IR. Signature of a kernel: (buffers, symbols, begin, end, scratch); symbols are the turns and the inner turns.


def _fma(lanes: int) -> str:
    v, each = f"<{lanes} x float>", range(_ACCUMULATORS)
    loads = "".join(
        f"  %p{k} = getelementptr {v}, ptr %data, i64 {k}\n  %s{k} = load {v}, ptr %p{k}, align 4\n"
        for k in range(_ACCUMULATORS + 2)
    )
    x, y = f"%s{_ACCUMULATORS}", f"%s{_ACCUMULATORS + 1}"
    phis = "".join(f"  %a{k} = phi {v} [%s{k}, %entry], [%b{k}, %loop]\n" for k in each)
    steps = "".join(f"  %b{k} = call {v} @llvm.fma.v{lanes}f32({v} %a{k}, {v} {x}, {v} {y})\n" for k in each)
    stores = "".join(f"  store {v} %b{k}, ptr %p{k}, align 4\n" for k in each)
    return f"""declare {v} @llvm.fma.v{lanes}f32({v}, {v}, {v})
define void @fma(ptr %buffers, ptr %symbols, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %data = load ptr, ptr %buffers
  %turns = load i64, ptr %symbols
{loads}  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
{phis}{steps}  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %turns
  br i1 %more, label %loop, label %done
done:
{stores}  ret void
}}"""


def _read(lanes: int) -> str:
    v, each = f"<{lanes} x i32>", range(_UNROLL)
    zero = f"{v} zeroinitializer"
    outer = "".join(f"  %o{k} = phi {zero.replace(' zero', ' [zero')}, %entry], [%b{k}, %pass]\n" for k in each)
    inner = "".join(f"  %a{k} = phi {v} [%o{k}, %outer], [%b{k}, %loop]\n" for k in each)
    steps = "".join(
        f"  %n{k} = add i64 %base, {k}\n  %p{k} = getelementptr {v}, ptr %data, i64 %n{k}\n"
        f"  %l{k} = load {v}, ptr %p{k}, align 4\n  %b{k} = xor {v} %a{k}, %l{k}\n"
        for k in each
    )
    stores = "".join(
        f"  %q{k} = getelementptr {v}, ptr %data, i64 {k}\n  store {v} %b{k}, ptr %q{k}, align 4\n" for k in each
    )
    return _nest("read", outer, inner, f"  %base = mul i64 %i, {_UNROLL}\n{steps}", stores)


def _stream(lanes: int) -> str:
    v = f"<{lanes} x float>"
    one = f"<{', '.join(['float 0x3FF0000000000000'] * lanes)}>"
    steps = "".join(
        f"  %n{k} = add i64 %base, {k}\n  %p{k} = getelementptr {v}, ptr %data, i64 %n{k}\n"
        f"  %l{k} = load {v}, ptr %p{k}, align 4\n  %b{k} = fadd {v} %l{k}, {one}\n"
        f"  %q{k} = getelementptr {v}, ptr %other, i64 %n{k}\n  store {v} %b{k}, ptr %q{k}, align 4\n"
        for k in range(_UNROLL)
    )
    return _nest("stream", "", "", f"  %base = mul i64 %i, {_UNROLL}\n{steps}", "")


def _nest(name: str, outer_phis: str, inner_phis: str, body: str, after: str) -> str:
    """``turns`` passes over the buffer in ``inner`` steps."""
    return f"""define void @{name}(ptr %buffers, ptr %symbols, i64 %begin, i64 %end, ptr %scratch) {{
entry:
  %data = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %other = load ptr, ptr %second
  %turns = load i64, ptr %symbols
  %count = getelementptr i64, ptr %symbols, i64 1
  %inner = load i64, ptr %count
  br label %outer
outer:
  %t = phi i64 [0, %entry], [%u, %pass]
{outer_phis}  br label %loop
loop:
  %i = phi i64 [0, %outer], [%j, %loop]
{inner_phis}{body}  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %inner
  br i1 %more, label %loop, label %pass
pass:
  %u = add i64 %t, 1
  %again = icmp slt i64 %u, %turns
  br i1 %again, label %outer, label %done
done:
{after}  ret void
}}"""
