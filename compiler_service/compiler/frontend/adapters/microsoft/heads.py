"""The core of every form of attention: heads split and merged, biases that mask, scaled products."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from shared_ir.dtype import DType
from shared_ir.expr.dim import Dim


@dataclass
class Heads:
    """``softmax(scale * q @ k^T + biases) @ v`` for q ``[b, n, s, h]``, k and v ``[b, n, t, h]``."""

    chain: Chain
    like: str
    """A value of the element type of the tensors."""
    scale: float
    filtered: float = -10000.0
    """What is added to the products of masked keys."""
    future: float | None = None
    """What is added to those of keys after the query, if it is something else."""
    softcap: float = 0.0
    sink: str = ""
    """``[n, 1, 1]``: a product of each head that takes part in the softmax and has no value."""
    masked: list[str] = field(default_factory=list)
    """Where products do not count: bool, that broadcast to ``[b, n, s, t]``; they are among the biases too."""
    biases: list[str] = field(default_factory=list)

    def attend(self, query: str, key: str, value: str) -> str:
        """``[b, s, n * h]``"""
        return self.weighted(self.weights(self.biased(self.products(query, key))), value)

    def products(self, query: str, key: str) -> str:
        """``[b, n, s, t]``, scaled and capped, without the biases."""
        chain = self.chain
        products = chain.add("MatMul", query, chain.add("Transpose", key, perm=(0, 1, 3, 2)))
        products = chain.add("Mul", products, self._number("scale", self.scale))
        if self.softcap:
            cap = self._number("softcap", self.softcap)
            products = chain.add("Mul", chain.add("Tanh", chain.add("Div", products, cap)), cap)
        return products

    def biased(self, products: str) -> str:
        for bias in self.biases:
            products = self.chain.add("Add", products, bias)
        return products

    def weights(self, products: str) -> str:
        """The softmax of biased products."""
        chain = self.chain
        if not self.sink:
            return chain.add("Softmax", products, axis=-1)
        last, end = (chain.operands.int64s(name, (number,)) for name, number in (("last", -1), ("first", 0)))
        rows = chain.add("Concat", chain.add("Shape", products, end=-1), chain.operands.int64s("one", (1,)), axis=0)
        wide = chain.add("Concat", products, chain.add("Expand", self.sink, rows), axis=-1)
        return chain.add("Slice", chain.add("Softmax", wide, axis=-1), end, last, last)

    def weighted(self, weights: str, value: str) -> str:
        """Sums of the values, ``[b, s, n * h]``."""
        return self.merged(self.chain.add("MatMul", weights, value))

    def unmasked(self, products: str) -> str:
        """``products`` with 0 where they do not count."""
        for mask in self.masked:
            products = self.chain.add("Where", mask, self._number("zero", 0.0), products)
        return products

    def _number(self, label: str, value: float) -> str:
        return self.chain.operands.like(label, value, self.like)

    # -- shapes

    def split(self, x: str, heads: int) -> str:
        """``[b, s, n * h]`` to ``[b, n, s, h]``"""
        shape = self.chain.operands.int64s("heads", (0, 0, heads, -1))
        return self.chain.add("Transpose", self.chain.add("Reshape", x, shape), perm=(0, 2, 1, 3))

    def merged(self, x: str) -> str:
        """``[b, n, s, h]`` to ``[b, s, n * h]``"""
        shape = self.chain.operands.int64s("merged", (0, 0, -1))
        return self.chain.add("Reshape", self.chain.add("Transpose", x, perm=(0, 2, 1, 3)), shape)

    # -- masks

    def mask_where(self, masked: str, added: float | None = None) -> None:
        """Mask the keys for which the bool ``masked``, which broadcasts to ``[b, n, s, t]``, is true."""
        added = self.filtered if added is None else added
        self.masked.append(masked)
        bias = self.chain.add("Where", masked, self._number("filter", added), self._number("zero", 0.0))
        self.biases.append(bias)

    def mask_future(self, query: str, key: str, window: int = 0) -> None:
        """Mask keys after each query, the last of both being simultaneous, and those ``window`` or more before it."""
        rows, columns = self.last_positions(query, key), self.positions(key)
        later = self.chain.add("Greater", columns, rows)
        if window > 0:
            size = self.chain.operands.int64s("window", (window,))
            earlier = self.chain.add("LessOrEqual", columns, self.chain.add("Sub", rows, size))
            later = self.chain.add("Or", later, earlier)
        self.mask_where(later, self.future)

    def positions(self, x: str) -> str:
        """int64 ``[t]``: 0, 1, ... along the rows of ``x [b, n, t, h]``."""
        return self.count(self.extent(x, 2))

    def count(self, length: str) -> str:
        """0, 1, ... below the one element of the int64 vector ``length``."""
        return self._range(self.chain.operands.int64s("start", (0,)), length)

    def last_positions(self, query: str, key: str) -> str:
        """int64 ``[s, 1]``: the last ``s`` positions of the keys."""
        length = self.extent(key, 2)
        found = self._range(self.chain.add("Sub", length, self.extent(query, 2)), length)
        return self.chain.add("Unsqueeze", found, self.chain.operands.int64s("column", (1,)))

    def extent(self, x: str, axis: int) -> str:
        """int64 ``[1]``"""
        return self.chain.add("Shape", x, start=axis, end=axis + 1)

    def _range(self, start: str, limit: str) -> str:
        first, last = (self.chain.add("Squeeze", v) for v in (start, limit))
        return self.chain.add("Range", first, last, self.chain.add("Squeeze", self.chain.operands.int64s("one", (1,))))

    def mask_padding(self, mask: str, key: str, batch: Dim) -> None:
        """Mask by ``mask``: numbers of :meth:`mask_outside`, or zeros for keys in ``[b, t]``, ``[b, s, t]``, ``[b, 1, s, t]``."""
        chain, operands = self.chain, self.chain.operands
        rank = operands.rank(mask)
        if rank == 1:
            self.mask_outside(chain.add("Cast", mask, to=DType.INT64), key, operands.shape(mask)[0], batch)
            return
        axes = {2: (1, 2), 3: (1,), 4: ()}[rank]
        kept = chain.add("Unsqueeze", mask, operands.int64s("axes", axes)) if axes else mask
        self.mask_where(chain.add("Not", chain.add("Cast", kept, to=DType.BOOL)))

    def mask_outside(self, bounds: str, key: str, count: Dim, batch: Dim) -> None:
        """``bounds``, of which there are ``count``: where the keys of each row end; then, of ``2 * b``, where they start; of
        ``3 * b + 2`` the rest are sums of the lengths."""
        chain = self.chain
        rows = chain.operands.int64s("axes", (1, 2, 3))
        ends, starts = bounds, ""
        if count in (batch * 2, batch * 3 + 2):
            size = chain.add("Shape", self.chain.node.inputs[0], start=0, end=1)
            first, last = (
                chain.operands.int64s(name, (n,)) for name, n in (("first", 0), ("last", np.iinfo(np.int64).max))
            )
            ends = chain.add("Slice", bounds, first, size)
            starts = chain.add("Slice", bounds, size, last) if count == batch * 2 else ""
        elif isinstance(count, int) and isinstance(batch, int) and count != batch:
            raise chain.operands.unsupported("mask", f"{batch}, {batch * 2} or {batch * 3 + 2} numbers", str(count))
        positions = self.positions(key)
        masked = chain.add("GreaterOrEqual", positions, chain.add("Unsqueeze", ends, rows))
        if starts:
            before = chain.add("Less", positions, chain.add("Unsqueeze", starts, rows))
            masked = chain.add("Or", masked, before)
        self.mask_where(masked)
