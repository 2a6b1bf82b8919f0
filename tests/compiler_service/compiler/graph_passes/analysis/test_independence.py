"""Rows are proven to be independent in networks of every kind, and in none that mixes them."""

from __future__ import annotations

import pytest
from onnx import ModelProto

from compiler_service.compiler.frontend.load import import_model
from compiler_service.compiler.frontend.options import ImportOptions
from compiler_service.compiler.graph_passes.analysis.independence import RowProof
from compiler_service.compiler.pipeline import inference
from compiler_service.compiler.program.rows import prove_rows
from compiler_service.compiler.program.variants import Variant
from tests.compiler_service.compiler.graph_passes.analysis.batch_models import APART, MIXED, one


def proof(model: ModelProto) -> RowProof:
    return prove_rows([Variant(import_model(model.SerializeToString(), ImportOptions(), inference()))])


@pytest.mark.parametrize("name", APART)
def test_rows_of_networks_are_apart(name: str) -> None:
    assert proof(APART[name]) == RowProof("batch")


@pytest.mark.parametrize("name", MIXED)
def test_rows_that_see_each_other_are_not_proven(name: str) -> None:
    found = proof(MIXED[name])
    assert found.symbol == ""
    assert found.reason


def test_the_reason_is_where_the_proof_ends() -> None:
    assert proof(MIXED["guarded"]).reason.startswith("m (ReduceMax)")
    assert proof(MIXED["a batch that is an extent too"]).reason == "batch is the extent of another axis too"
    fixed = one("Relu", inputs={"x": (2, 4)})
    assert proof(fixed).reason == "no symbol is the first extent of every input and output"


def test_every_way_through_a_model_is_proven() -> None:
    apart, mixed = (
        Variant(import_model(m.SerializeToString(), ImportOptions(), inference()))
        for m in (one("Relu"), one("Softmax", axis=0))
    )
    assert prove_rows([apart, apart]).symbol == "batch"
    assert not prove_rows([apart, mixed]).symbol
    assert not prove_rows([mixed, apart]).symbol
