"""The weights of a model: constants made ready for the kernels that read them, streamed into one file."""

from __future__ import annotations

import math
import mmap
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from compiler_service.schedule.packing import Preparation
from compiler_service.tensor_expr.tensor import Tensor
from shared_ir.graph import Value
from shared_ir.plan import ALIGNMENT


@dataclass
class Weights:
    """Prepared constants laid out one after the other, each 64-byte aligned; equal ones are kept once."""

    size: int = 0
    _offsets: dict[tuple[Value, Preparation], int] = field(default_factory=dict)
    _arrays: list[tuple[int, np.ndarray, Tensor, Preparation]] = field(default_factory=list)

    def place(self, value: Value, array: np.ndarray, argument: Tensor, preparation: Preparation) -> int:
        """Offset in bytes of ``array`` as ``preparation`` makes it."""
        key = (value, preparation)
        if key not in self._offsets:
            self.size = -(-self.size // ALIGNMENT) * ALIGNMENT
            self._offsets[key] = self.size
            self._arrays.append((self.size, array, argument, preparation))
            self.size += prepared_size(array, argument, preparation)
        return self._offsets[key]

    def write(self, path: Path | None = None) -> memoryview | Path:
        """The contents of ``weights.bin``: ``path``, or a read-only mapping of a temporary file that has no name.

        Constants are prepared one after the other, so that no more than one of them is ever in memory twice.
        """
        if path is not None:
            with path.open("wb") as file:
                self._write(file)
            return path
        with tempfile.TemporaryFile(prefix="ingot-weights-") as file:
            self._write(file)
            file.flush()
            if self.size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ))

    def _write(self, file: IO[bytes]) -> None:
        end = 0
        for offset, array, argument, preparation in self._arrays:
            file.write(bytes(offset - end))
            flat = np.ascontiguousarray(preparation.apply(array, argument)).reshape(-1).view(np.uint8)
            file.write(flat.data)
            end = offset + flat.size
        file.write(bytes(self.size - end))


def prepared_size(array: np.ndarray, argument: Tensor, preparation: Preparation) -> int:
    if preparation == Preparation():
        return array.size * array.itemsize
    return math.prod(int(str(d)) for d in preparation.shape(argument.shape)) * array.itemsize
