"""Whether rows of different clients may be computed together by a model, whichever way a run takes through it."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_service.compiler.graph_passes.analysis.independence import RowProof, rows_apart
from compiler_service.compiler.program.variants import Variant
from shared_ir.expr.dim import dim_symbols


def prove_rows(variants: Sequence[Variant]) -> RowProof:
    """The proof that holds for all ``variants``, as they are imported."""
    if any(v.module.defaults for v in variants):
        return RowProof(reason="an input may be left out")
    found = None
    for variant in variants:
        with variant.within():
            found = rows_apart(variant.module.graph)
        asked = dim_symbols(dim for pair in variant.choices for dim in pair)
        if found.symbol and found.symbol in asked:
            return RowProof(reason=f"the model asks whether {found.symbol} is equal to another size")
        if not found.symbol:
            return found
    assert found is not None
    return found
