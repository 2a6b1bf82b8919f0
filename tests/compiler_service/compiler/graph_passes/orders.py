"""Random orders of all passes that what they declare admits."""

from __future__ import annotations

from collections.abc import Mapping

import hypothesis.strategies as st

from compiler_service.compiler.graph_passes.convolutions.divide_means import DivideMeans
from compiler_service.compiler.graph_passes.convolutions.separate_taps import SeparateTaps
from compiler_service.compiler.graph_passes.fusion.tile_batch import Costs, TileBatch
from compiler_service.compiler.graph_passes.memory.pad_rows import PadRows
from compiler_service.compiler.graph_passes.memory.place_parts import PlaceParts
from compiler_service.compiler.graph_passes.memory.split_concatenations import SplitConcatenations
from compiler_service.compiler.graph_passes.pipelines import PASSES
from compiler_service.compiler.graph_passes.precision.halve_weights import HalveWeights
from compiler_service.compiler.graph_passes.precision.keep_quantized import KeepQuantized
from compiler_service.compiler.graph_passes.rewriting.facts import GraphFact
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass

EAGER: Mapping[str, Pass] = {
    item.name: item
    for item in (
        KeepQuantized(least_elements=1),
        HalveWeights(least_bytes=1),
        SeparateTaps(least_channels=1, growth=100),
        DivideMeans(least_bytes=1),
        TileBatch(Costs(cache=64, launch=0), least_share=0),
        PlaceParts(launch_bytes=0, least_run=1),
        SplitConcatenations(2),
        PadRows(way=1, sets=1, padding=24),
    )
}
"""Passes that leave small graphs alone, with options that do not."""


@st.composite
def legal_orders(draw: st.DrawFn) -> tuple[Pass, ...]:
    """Every pass at least once, some again, in a random order that what they declare admits."""
    again = draw(st.lists(st.sampled_from(sorted(PASSES)), max_size=6))
    eager = draw(st.booleans())
    left: list[Pass] = [EAGER[n] if eager and n in EAGER else PASSES[n]() for n in (*PASSES, *again)]
    order: list[Pass] = []
    given: frozenset[GraphFact] = frozenset()
    while left:
        coming = frozenset().union(*(p.given() for p in left)) - given
        barred = frozenset().union(*(p.forbids for p in left))
        free = [p for p in left if not p.needs & coming and not (p.given() - given) & barred]
        item = draw(st.sampled_from(free))
        left.remove(item)
        order.append(item)
        given |= item.given()
    return tuple(order)
