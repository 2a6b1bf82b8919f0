"""Kernels to schedule, and running one through the loop interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from compiler_service.compiler.codegen.toolchain.jit import JitKernel
from compiler_service.compiler.loop_ir import passes
from compiler_service.compiler.loop_ir.interpret import run as interpret
from compiler_service.compiler.loop_ir.ir import For, Function, If, Let, Prefetch, Statement, substatements
from compiler_service.compiler.loop_ir.verify import verify
from compiler_service.compiler.schedule.default import default_schedule
from compiler_service.compiler.schedule.language.packing import preparation_of
from compiler_service.compiler.schedule.language.schedule import Schedule
from compiler_service.compiler.schedule.language.state import stage_names
from compiler_service.compiler.schedule.lower import lower
from compiler_service.compiler.tensor_expr.meaning.evaluate import evaluate
from compiler_service.compiler.tensor_expr.strides import row_major, span
from compiler_service.compiler.tensor_expr.tensor import Load, Placeholder, Tensor, topological
from shared_ir.arrays import storage_dtype
from shared_ir.dtype import DType
from shared_ir.expr import Const, Expr, Var, lift, substitute, transform
from shared_ir.expr.dim import Dim, dim_symbols
from shared_ir.expr.dim import evaluate as evaluate_dim
from shared_ir.expr.simplify import simplify
from shared_ir.machine.target import Target
from tests.compiler_service.compiler.loop_ir.loop_checks import assert_reads_back

AVX512 = Target("llvm", "x86_64-linux-gnu", "skylake-avx512", (), 512, 32, True, 32768, 1 << 20, 0, 2)
AVX2 = Target("llvm", "x86_64-linux-gnu", "haswell", (), 256, 16, False, 32768, 1 << 18, 0, 2)
NEON = Target("llvm", "aarch64-linux-gnu", "cortex-a72", (), 128, 32, False, 32768, 1 << 20, 0, 4)
VNNI = Target("llvm", "x86_64-linux-gnu", "znver4", (), 512, 32, True, 32768, 1 << 20, 0, 2)
AVX_VNNI = Target("llvm", "x86_64-linux-gnu", "haswell", ("+avxvnni",), 256, 16, False, 32768, 1 << 18, 0, 2)
DOT_PRODUCTS = Target("llvm", "aarch64-linux-gnu", "cortex-a76", (), 128, 32, False, 65536, 1 << 19, 0, 4)
TARGETS = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}
ONE_QUICK_TARGET = ["avx512", *(pytest.param(t, marks=pytest.mark.slow) for t in ("avx2", "neon"))]
"""All targets; the quick tests look at the one with the most machinery: masks."""


def arguments_of(output: Tensor) -> tuple[Tensor, ...]:
    return tuple(t for t in topological(output) if isinstance(t.op, Placeholder))


def random_feeds(output: Tensor, symbols: Mapping[str, int], seed: int = 0) -> dict[Tensor, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds: dict[Tensor, np.ndarray] = {}
    for tensor in arguments_of(output):
        shape = tuple(evaluate_dim(d, symbols) for d in tensor.shape)
        if tensor.dtype.is_float:
            feeds[tensor] = rng.standard_normal(shape).astype(storage_dtype(tensor.dtype))
        else:
            high = 1 << 32 if tensor.dtype is DType.UINT32 else 3  # words hold codes
            feeds[tensor] = rng.integers(0, high, shape).astype(storage_dtype(tensor.dtype))
    return feeds


def native(output: Tensor, feeds: Mapping[Tensor, np.ndarray], target: Target, schedule: Schedule) -> np.ndarray:
    """The output, of float32 and known extents, as machine code of this host computes it."""
    arguments, names = arguments_of(output), stage_names(output)
    kernel = JitKernel(passes.run(lower("kernel", output, arguments, [], schedule, target)), target)
    result = np.zeros(tuple(int(str(d)) for d in output.shape), np.float32)
    kernel([*(preparation_of(schedule, names[t], t).apply(feeds[t], t) for t in arguments), result])
    kernel.close()
    return result


def interpreted(
    output: Tensor,
    feeds: Mapping[Tensor, np.ndarray],
    symbols: Mapping[str, int],
    target: Target,
    schedule: Schedule,
    *,
    after_passes: bool,
) -> np.ndarray:
    """The output as the loop program computes it, every access checked."""
    arguments = arguments_of(output)
    names = stage_names(output)
    parameters = sorted(dim_symbols(d for t in topological(output) for d in t.shape))
    function = lower("kernel", output, arguments, parameters, schedule, target)
    verify(function)
    if after_passes:
        function = passes.run(function)
        verify(function, flat=True)
    assert_reads_back(function)
    arrays = [preparation_of(schedule, names[t], t).apply(feeds[t], t) for t in arguments]
    arrays = [_in_memory(a, t, symbols) for a, t in zip(arrays, arguments, strict=True)]
    own = [storage_dtype(b.dtype) for b in function.buffers[: len(arrays)]]
    arrays = [a if a.dtype == d else np.ascontiguousarray(a).view(d) for a, d in zip(arrays, own, strict=True)]  # words
    size = evaluate_dim(span(output.shape, output.strides), symbols)
    result = np.full(size, _UNTOUCHED, storage_dtype(output.dtype))
    interpret(function, [*arrays, result], {p: symbols[p] for p in parameters})
    found = _elements(result, output, symbols).copy()
    _elements(result, output, symbols)[...] = _UNTOUCHED
    assert (result == _UNTOUCHED).all()
    return found


_UNTOUCHED = 77


def _elements(memory: np.ndarray, tensor: Tensor, symbols: Mapping[str, int]) -> np.ndarray:
    """The elements of ``tensor`` in ``memory``."""
    strides = tensor.strides or row_major(tensor.shape)
    steps = [evaluate_dim(s, symbols) * memory.itemsize for s in strides]
    return as_strided(memory, [evaluate_dim(d, symbols) for d in tensor.shape], steps)


def _in_memory(array: np.ndarray, tensor: Tensor, symbols: Mapping[str, int]) -> np.ndarray:
    """``array`` as the argument ``tensor``, not-a-numbers in its gaps."""
    if tensor.strides is None:
        return array
    blank = np.nan if tensor.dtype.is_float else _UNTOUCHED
    memory = np.full(evaluate_dim(span(tensor.shape, tensor.strides), symbols), blank, array.dtype)
    _elements(memory, tensor, symbols)[...] = array
    return memory


def with_strides(output: Tensor, dense: frozenset[str] = frozenset()) -> Tensor:
    """``output`` in the same way, but with gaps after the last two axes of it and of its arguments that are not ``dense``."""
    new: dict[Tensor, Tensor] = {}

    def reload(expr: Expr) -> Expr | None:
        return Load(new[expr.tensor], expr.indices) if isinstance(expr, Load) else None

    def gaps(tensor: Tensor) -> tuple[Dim, ...]:
        *outer, before, last = (1, 1, *tensor.shape)
        return row_major((*outer, before + 1, last + 5))[2:]

    for tensor in topological(output):
        if isinstance(tensor.op, Placeholder):
            new[tensor] = tensor if tensor.name in dense else replace(tensor, strides=gaps(tensor))
        else:
            new[tensor] = replace(tensor, op=replace(tensor.op, body=transform(tensor.op.body, reload)))
    return replace(new[output], strides=gaps(output))


def check(
    output: Tensor, symbols: Mapping[str, int], target: Target, constants: frozenset[Tensor], after_passes: bool
) -> None:
    feeds = random_feeds(output, symbols)
    schedule = default_schedule(output, constants, target)
    got = interpreted(output, feeds, symbols, target, schedule, after_passes=after_passes)
    (wanted,) = evaluate([output], feeds, symbols)
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def prefetched(statement: Statement, env: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """The elements that ``statement`` asks memory for; all its sizes are known."""
    match statement:
        case For(var=var, extent=extent, body=body):
            for i in range(_number(extent, env)):
                yield from prefetched(body, {**env, var.name: i})
        case Let(var=var, value=value, body=body):
            yield from prefetched(body, {**env, var.name: _number(value, env)})
        case If(cond=cond, then=then, otherwise=otherwise):
            chosen = then if _number(cond, env) else otherwise
            yield from () if chosen is None else prefetched(chosen, env)
        case Prefetch(indices=indices):
            yield tuple(_number(i, env) for i in indices)
        case _:
            for inner in substatements(statement):
                yield from prefetched(inner, env)


def prefetched_by(function: Function) -> Iterator[tuple[int, ...]]:
    """The elements that all tasks of ``function`` ask memory for."""
    for task in range(int(str(function.tasks))):
        yield from prefetched(function.body, {function.task.name: task})


def _number(expr: Expr, env: Mapping[str, int]) -> int:
    found = simplify(substitute(expr, {Var(name): lift(value) for name, value in env.items()}))
    assert isinstance(found, Const), found
    return int(found.value)
