"""The weights of a model: constants made ready for the kernels that read them, streamed into one file."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compiler_service.compiler.schedule.language.packing import Preparation
from compiler_service.compiler.tensor_expr.tensor import Tensor
from shared_ir.expr.dim import static
from shared_ir.graph.ir import Value
from shared_ir.graph.literals import array_digest
from shared_ir.plan.program import ALIGNMENT_BYTES
from shared_ir.storage.files import map_open_file, write_blocks


@dataclass
class Weights:
    """Prepared constants laid out one after the other, each 64-byte aligned; equal ones are kept once.

    Within one graph equal constants are one value; with ``by_content`` those of several graphs are told apart by their elements.
    """

    by_content: bool = False
    size: int = 0
    _offsets: dict[tuple[Hashable, Preparation], int] = field(default_factory=dict)
    _digests: dict[int, tuple[np.ndarray, Hashable]] = field(default_factory=dict)
    _arrays: list[tuple[int, np.ndarray, Tensor, Preparation]] = field(default_factory=list)

    def place(self, value: Value, array: np.ndarray, argument: Tensor, preparation: Preparation) -> int:
        """Offset in bytes of ``array`` as ``preparation`` makes it."""
        key = (self._content(array) if self.by_content else value, preparation)
        if key not in self._offsets:
            self.size = -(-self.size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            self._offsets[key] = self.size
            self._arrays.append((self.size, array, argument, preparation))
            self.size += prepared_size(array, argument, preparation)
        return self._offsets[key]

    def _content(self, array: np.ndarray) -> Hashable:
        """The same for equal arrays; each is looked at once."""
        found = self._digests.get(id(array))
        if found is None:
            found = self._digests[id(array)] = array, (str(array.dtype), array.shape, array_digest(array))
        return found[1]

    def write(self, path: Path | None = None, *, denormals: bool = False) -> memoryview | Path:
        """The contents of ``weights.bin``: ``path``, or a read-only mapping of a temporary file that has no name.

        Constants are prepared one after the other, so that no more than one of them is ever in memory twice. Those that are
        arranged for a product lose their denormal numbers, which vanish in its sums and would slow each down, unless
        ``denormals`` are to be kept.
        """
        if path is not None:
            with path.open("wb", buffering=0) as file:
                write_blocks(file, self._pieces(denormals))
            return path
        with tempfile.TemporaryFile(prefix="ingot-weights-", buffering=0) as file:
            write_blocks(file, self._pieces(denormals))
            return memoryview(map_open_file(file)) if self.size else memoryview(b"")

    def _pieces(self, denormals: bool) -> Iterator[bytes | memoryview]:
        end = 0
        for offset, array, argument, preparation in self._arrays:
            yield bytes(offset - end)
            prepared = preparation.apply(array, argument)
            if not denormals and preparation != Preparation():
                prepared = _without_denormals(prepared)
            flat = np.ascontiguousarray(prepared).reshape(-1).view(np.uint8)
            yield flat.data
            end = offset + flat.size
        yield bytes(self.size - end)


_BLOCK_BYTES = 1 << 18


def _without_denormals(array: np.ndarray) -> np.ndarray:
    """float32 and float64 numbers with zeros in place of denormal ones; ``array`` itself where there are none."""
    if array.dtype not in (np.float32, np.float64):
        return array
    tiny, flat = np.finfo(array.dtype).tiny, np.ascontiguousarray(array).reshape(-1)
    blocks = [flat[i : i + _BLOCK_BYTES] for i in range(0, flat.size, _BLOCK_BYTES)]
    if not any(((np.abs(b) < tiny) & (b != 0)).any() for b in blocks):
        return array
    return np.where(np.abs(flat) < tiny, array.dtype.type(0), flat).reshape(array.shape)


def prepared_size(array: np.ndarray, argument: Tensor, preparation: Preparation) -> int:
    if preparation == Preparation():
        return array.size * array.itemsize
    return math.prod(static(d) for d in preparation.shape(argument.shape)) * preparation.itemsize(array.itemsize)
