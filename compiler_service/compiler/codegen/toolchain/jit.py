"""Kernels called in this process, for tests and for tuning."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from compiler_service.compiler.codegen.emit.kernel import emit_kernel, scratch_size
from compiler_service.compiler.codegen.toolchain.machine import compile_ir, initialize_llvm
from compiler_service.compiler.loop_ir.ir import Function
from shared_ir.expr.dim import evaluate
from shared_ir.machine.target import Target

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS)
_GOES_ON = ctypes.c_int32(0)
_ALIGNMENT_BYTES = 64


class LoadedObject:
    """An object file linked into this process; :meth:`close` unmaps it."""

    def __init__(self, data: bytes, symbols: Sequence[str]) -> None:
        initialize_llvm()
        self._session = llvm.create_lljit_compiler(suppress_errors=True)
        builder = llvm.JITLibraryBuilder().add_object_img(data)
        for symbol in symbols:
            builder = builder.export_symbol(symbol)
        self._tracker = builder.link(self._session, "kernel")

    def address(self, symbol: str) -> int:
        return int(self._tracker[symbol])

    def close(self) -> None:
        self._tracker.close()
        self._session.close()


class JitKernel:
    """A loop function compiled for this machine.

    ``kernel(arrays, symbols, tasks)`` runs it: one C-contiguous array per buffer, the value of every symbol, and a range of tasks
    (default: all). Outputs are written in place.
    """

    def __init__(self, function: Function, target: Target, object_file: bytes | None = None) -> None:
        """``object_file``: the function compiled already, exporting ``kernel``."""
        self.function = function
        if object_file is None:
            object_file = compile_ir(emit_kernel(function, target, "kernel"), target)
        self._loaded = LoadedObject(object_file, ["kernel"])
        self._call = _SIGNATURE(self._loaded.address("kernel"))
        scratch = np.zeros(scratch_size(function) + _ALIGNMENT_BYTES, np.uint8)
        self._scratch_memory = scratch
        self._scratch = -(-scratch.ctypes.data // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES

    def __call__(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        symbols: Mapping[str, int] | None = None,
        tasks: tuple[int, int] | None = None,
    ) -> None:
        function = self.function
        if len(arrays) != len(function.buffers):
            raise ValueError(f"{function.name} has {len(function.buffers)} buffers, {len(arrays)} arrays given")
        for buffer, array in zip(function.buffers, arrays, strict=True):
            if not array.flags.c_contiguous or array.itemsize != buffer.dtype.itemsize:
                raise ValueError(f"the array for {buffer.name} is not a contiguous array of {buffer.dtype}")
        values = dict(symbols or {})
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        numbers = (ctypes.c_int64 * len(function.symbols))(*(values[s.name] for s in function.symbols))
        begin, end = tasks if tasks is not None else (0, evaluate(function.tasks, values))
        self._call(
            ctypes.addressof(pointers), ctypes.addressof(numbers), begin, end, self._scratch, ctypes.addressof(_GOES_ON)
        )

    def close(self) -> None:
        """Unmaps the code; the kernel must not be called again."""
        self._loaded.close()
