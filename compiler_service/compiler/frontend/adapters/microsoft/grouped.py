"""Attention whose queries share heads of keys and values, with a cache of those that came before: GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler_service.compiler.frontend.adapters.chain import Chain
from compiler_service.compiler.frontend.adapters.microsoft.attention import core_of, rotated, static
from compiler_service.compiler.frontend.adapters.microsoft.heads import Heads
from compiler_service.compiler.frontend.adapters.operands import Operands
from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.dtype import DType

Nodes = tuple[SourceNode, ...]

_UNIFORM = "the rows of a batch must have as many tokens as total_sequence_length says, unless none came before"
_UNIFORM_WINDOW = "with sliding_window_cache the rows of a batch must have as many tokens as total_sequence_length says"
_CAPACITY = "the cache must have room for at least local_window_size tokens"
_BEFORE_SOFTMAX, _AFTER_SOFTMAX = 1, 2


def group_query_attention(node: SourceNode, operands: Operands) -> Nodes:
    """Inputs: query, key, value, past key and value ``[b, kv, p, h]``, seqlens_k ``[b]``, total_sequence_length,
    cosines, sines, position_ids, attention_bias, head_sink ``[n]``, scales, weights of norms ``[h]``.

    Where keys came before, every row of the batch has as many: rows that are padded on the right are for the first call.
    """
    chain = Chain(node, operands)
    _check(chain)
    heads, groups = chain.attribute("num_heads"), chain.attribute("kv_num_heads")
    query = node.inputs[0]
    packed = not node.input(1)
    width = static(operands, query, 2) // (heads + 2 * groups if packed else heads)
    core = core_of(chain, query, width)
    core.softcap, core.future = chain.attribute("softcap", 0.0), None
    core.filtered = -1e30 if _is_wide(operands, query) else -60000.0
    parts: tuple[str, ...] = node.inputs[:3]
    if packed:
        sizes = operands.int64s("sizes", (heads * width, groups * width, groups * width))
        parts = chain.add_many("Split", (query, sizes), 3, axis=-1)
    cache = _Windowed(chain) if chain.attribute("sliding_window_cache") else _Cache(chain)
    cache.check()
    split = [core.split(p, n) for p, n in zip(parts, (heads, groups, groups), strict=True)]
    split[:2] = _normalized(chain, split[:2])
    if chain.attribute("do_rotary", 0):
        tables = (_positions(core, cache), node.inputs[7], node.inputs[8])
        split[:2] = [
            rotated(chain, p, tables, n, "rotary_interleaved") for p, n in zip(split, (heads, groups), strict=False)
        ]
    key, value = (cache.extended(index, split[index]) for index in (1, 2))
    cache.mask(core, split[0], key)
    _finish(core, cache, (split[0], key, value), heads // groups)
    return tuple(chain.nodes)


def _check(chain: Chain) -> None:
    """Refuse what is left out, by name.

    Raises:
        IngotError: UNSUPPORTED_ATTRIBUTE.
    """
    node, refused = chain.node, chain.operands.unsupported
    for index, name in ((12, "k_scale"), (13, "v_scale"), (16, "query_seqlens")):
        if node.input(index):
            raise refused(name, "none", node.input(index))
    causal, window = chain.attribute("causal"), chain.attribute("local_window_size")
    if window != -1 and (window < 1 or not causal):
        raise refused("local_window_size", "-1, or at least 1 and causal", f"{window}, causal={causal}")
    if chain.attribute("sliding_window_cache") and (window < 1 or not node.input(3)):
        raise refused("sliding_window_cache", "a local_window_size and past keys", f"{window} and {node.input(3)!r}")
    if chain.attribute("sliding_window_cache") and chain.attribute("qk_output"):
        raise refused("qk_output", "0 with sliding_window_cache", str(chain.attribute("qk_output")))
    is_asked = bool(node.outputs[3:4] and node.outputs[3])
    if chain.attribute("qk_output") not in ((_BEFORE_SOFTMAX, _AFTER_SOFTMAX) if is_asked else (0,)):
        raise refused("qk_output", "1 or 2 where output_qk is asked for, else 0", str(chain.attribute("qk_output")))
    if bool(node.input(14)) is not bool(node.input(15)):
        raise refused("q_norm_weight", "both weights of norms, or none", "one")


def _is_wide(operands: Operands, name: str) -> bool:
    return operands.dtype(name) is not DType.FLOAT16


def _normalized(chain: Chain, parts: list[str]) -> list[str]:
    """Queries and keys ``[b, n, s, h]``, each head over its mean square where there are weights for it."""
    if not chain.node.input(14):
        return parts
    common = chain.attribute("qk_norm_epsilon")
    found = []
    for part, weight, name in zip(parts, chain.node.inputs[14:16], ("q_norm_epsilon", "k_norm_epsilon"), strict=True):
        epsilon = chain.attribute(name, common)
        if not 0 < epsilon < float("inf"):
            raise chain.operands.unsupported(name, "a finite number above 0", str(epsilon))
        given = {"axis": -1, "epsilon": epsilon, "stash_type": DType.FLOAT32}
        found.append(chain.add("RMSNormalization", part, weight, **given))
    return found


def _finish(core: Heads, cache: _Cache, parts: tuple[str, str, str], times: int) -> None:
    chain, node = core.chain, core.chain.node
    query = parts[0]
    key, value = (_repeated(chain, v, times) for v in parts[1:])
    if node.input(11):
        core.sink = chain.add("Reshape", node.input(11), chain.operands.int64s("per_head", (1, -1, 1, 1)))
    elif chain.attribute("smooth_softmax") == 1:
        core.sink = chain.operands.like("sink", 0.0, query if query in node.inputs else node.inputs[0])
    products = core.products(query, key)
    if node.input(10):
        bias = cache.columns(node.input(10))
        if chain.attribute("qk_output") == _BEFORE_SOFTMAX:
            products = chain.add("Add", products, bias)
        else:
            core.biases.append(bias)
    weights = core.weights(core.biased(products))
    if chain.attribute("qk_output"):
        is_before = chain.attribute("qk_output") == _BEFORE_SOFTMAX
        chain.as_output(core.unmasked(products) if is_before else weights, 3)
    chain.as_output(core.weighted(weights, value))


@dataclass(frozen=True)
class _Cache:
    """Keys and values that came before, and those of this call behind them. Lengths are int64 ``[1]``."""

    chain: Chain

    @cached_property
    def own(self) -> str:
        return self.chain.add("Shape", self.chain.node.inputs[0], start=1, end=2)

    @cached_property
    def before(self) -> str:
        """The extent of a tensor: so keys and values have one length in common, which the run defines once."""
        chain = self.chain
        total = chain.add("Cast", chain.node.inputs[6], to=DType.INT64)
        count = chain.add("Sub", chain.add("Reshape", total, self._number("one", 1)), self.own)
        return chain.add("Shape", chain.add("Expand", self._number("none", 0), count))

    @cached_property
    def total(self) -> str:
        return self.chain.add("Add", self.before, self.own)

    def check(self) -> None:
        """``max(total - 1 - seqlens_k) * min(before, 1)`` must be 0."""
        one = self._number("one", 1)
        missing, before = self._missing(), self.chain.add("Min", self.before, one)
        self.chain.require(self.chain.add("Mul", missing, before), 0, f"node '{self.chain.node.title}': {_UNIFORM}")

    def _missing(self) -> str:
        """How many tokens the shortest row lacks."""
        chain, one = self.chain, self._number("one", 1)
        lengths = chain.add("Cast", chain.node.inputs[5], to=DType.INT64)
        shortest = chain.add(
            "ReduceMin", chain.add("Reshape", lengths, chain.operands.int64s("flat", (-1,))), keepdims=1
        )
        return chain.add("Sub", chain.add("Sub", self.total, one), shortest)

    def _number(self, label: str, value: int) -> str:
        return self.chain.operands.int64s(label, (value,))

    def _slice(self, x: str, first: str = "", end: str = "", axis: int = 2) -> str:
        first = first or self._number("first", 0)
        end = end or self._number("end", np.iinfo(np.int64).max)
        return self.chain.add("Slice", x, first, end, self._number("axis", axis))

    def _asks(self, index: int) -> bool:
        return bool(self.chain.node.outputs[index : index + 1] and self.chain.node.outputs[index])

    def extended(self, index: int, own: str) -> str:
        """The keys or values so far; the output ``present`` is as long as the buffer ``past`` where that is longer."""
        chain, past = self.chain, self.chain.node.input(index + 2)
        if not past:
            chain.as_output(own, index)
            return own
        found = chain.add("Concat", self._slice(past, end=self.before), own, axis=2)
        if self._asks(index):
            chain.as_output(chain.add("Concat", found, self._slice(past, first=self.total), axis=2), index)
        return found

    def mask(self, core: Heads, query: str, key: str) -> None:
        """Mask what a row does not have, then the future."""
        chain = self.chain
        lengths = chain.add("Cast", chain.node.inputs[5], to=DType.INT64)
        lengths = chain.add("Reshape", lengths, chain.operands.int64s("rows", (-1, 1, 1, 1)))
        core.mask_where(chain.add("Greater", core.positions(key), lengths))
        if chain.attribute("causal"):
            core.mask_future(query, key, max(0, chain.attribute("local_window_size")))

    def columns(self, bias: str) -> str:
        """The columns of the attention bias that belong to the keys."""
        return bias


class _Windowed(_Cache):
    """A cache of ``capacity`` rows that keeps the last tokens in its first rows, at least as many as the window has.

    Of ``t`` tokens stay ``t - g * ceil((t - capacity) / g)``, where ``g`` is ``capacity - window + 1``: they are dropped ``g`` at
    a time.
    """

    @cached_property
    def capacity(self) -> str:
        return self.chain.add("Shape", self.chain.node.inputs[3], start=2, end=3)

    @cached_property
    def held(self) -> str:
        """How many tokens lie in the cache before this call."""
        return self._resident(self.before)

    def _resident(self, count: str) -> str:
        chain, one = self.chain, self._number("one", 1)
        window = self._number("window", self.chain.attribute("local_window_size"))
        dropped = chain.add("Add", chain.add("Sub", self.capacity, window), one)
        over = chain.add("Add", chain.add("Sub", count, self.capacity), chain.add("Sub", dropped, one))
        times = chain.add("Div", chain.add("Max", over, self._number("none", 0)), dropped)
        return chain.add("Sub", count, chain.add("Mul", times, dropped))

    def check(self) -> None:
        chain, title = self.chain, self.chain.node.title
        window = self._number("window", self.chain.attribute("local_window_size"))
        lacking = chain.add("Max", chain.add("Sub", window, self.capacity), self._number("none", 0))
        chain.require(lacking, 0, f"node '{title}': {_CAPACITY}")
        chain.require(self._missing(), 0, f"node '{title}': {_UNIFORM_WINDOW}")

    def extended(self, index: int, own: str) -> str:
        chain, past = self.chain, self.chain.node.input(index + 2)
        found = chain.add("Concat", self._slice(past, end=self.held), own, axis=2)
        if self._asks(index):
            kept = self._resident(self.total)
            first = chain.add("Sub", chain.add("Add", self.held, self.own), kept)
            latest = self._slice(found, first=first)
            chain.as_output(chain.add("Concat", latest, self._slice(past, first=kept), axis=2), index)
        return found

    def mask(self, core: Heads, query: str, key: str) -> None:
        core.mask_future(query, key, self.chain.attribute("local_window_size"))

    def columns(self, bias: str) -> str:
        return self._slice(bias, first=self.chain.add("Sub", self.before, self.held), axis=3)


def _positions(core: Heads, cache: _Cache) -> str:
    """int64 ``[b, s]``. In the first call of a row only the first of the position_ids counts, for all rows of the batch."""
    chain, operands = core.chain, core.chain.operands
    given, own = chain.node.input(9), cache.own
    rows = chain.add("Concat", chain.add("Shape", chain.node.inputs[0], start=0, end=1), own, axis=0)
    if not given:
        return chain.add("Expand", chain.add("Add", core.count(own), cache.before), rows)
    flat = chain.add("Reshape", given, operands.int64s("flat", (-1,)))
    first, end = (operands.int64s(name, (number,)) for name, number in (("first", 0), ("second", 1)))
    counted = chain.add("Add", core.count(own), chain.add("Slice", flat, first, end))
    return chain.add("Where", chain.add("Equal", cache.before, first), chain.add("Expand", counted, rows), given)


def _repeated(chain: Chain, x: str, times: int) -> str:
    """``[b, kv, t, h]`` to ``[b, kv * times, t, h]``, every head ``times`` times."""
    if times == 1:
        return x
    operands = chain.operands
    wide = chain.add("Unsqueeze", x, operands.int64s("copies", (2,)))
    wide = chain.add("Expand", wide, operands.int64s("times", (1, 1, times, 1, 1)))
    shape = chain.add("Shape", x)
    batch, groups, rest = (
        chain.add("Slice", shape, operands.int64s("a", (a,)), operands.int64s("b", (b,)))
        for a, b in ((0, 1), (1, 2), (2, 4))
    )
    count = chain.add("Mul", groups, operands.int64s("times", (times,)))
    return chain.add("Reshape", wide, chain.add("Concat", batch, count, rest, axis=0), allowzero=1)
