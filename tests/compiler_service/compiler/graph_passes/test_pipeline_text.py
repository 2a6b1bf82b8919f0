"""Pipelines as text and back, and what options admit."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from compiler_service.compiler.graph_passes.algebra.simplify_algebra import SimplifyAlgebra
from compiler_service.compiler.graph_passes.cleaning.fold_constants import FoldConstants
from compiler_service.compiler.graph_passes.fusion.fuse import Fuse
from compiler_service.compiler.graph_passes.fusion.tile_batch import Costs, TileBatch
from compiler_service.compiler.graph_passes.memory.split_concatenations import SplitConcatenations
from compiler_service.compiler.graph_passes.pipeline_text import parse_pipeline
from compiler_service.compiler.graph_passes.pipelines import PASSES, default_pipeline
from compiler_service.compiler.graph_passes.precision.halve_weights import HalveWeights
from compiler_service.compiler.graph_passes.rewriting.instruments import Verify
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, PassContext, Pipeline
from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, parse_target
from tests.compiler_service.compiler.graph_passes.pass_graphs import assert_same, graph
from tests.compiler_service.compiler.graph_passes.test_pass_pipeline import NETWORK


@pytest.mark.parametrize("target", [None, *PRESETS])
@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("filters", [False, True])
def test_default_pipelines_read_back(target: str | None, level: int, filters: bool) -> None:
    pipeline = default_pipeline(level, None if target is None else parse_target(target), filters=filters)
    assert parse_pipeline(str(pipeline)) == pipeline
    assert str(parse_pipeline(str(pipeline))) == str(pipeline)


def test_options_of_every_kind() -> None:
    text = (
        "fold-constants{largest_result=10, keeps=(DequantizeLinear, ingot.Dequantize)} , "
        "simplify-algebra{ approximate=false,dots=uint8 },halve-weights{dtypes=(bfloat16)},fuse{prologues=true,most_nodes=8},"
        "tile-batch{costs={cache=4096,flops=64,launch=0.5},least_share=1e-3}"
    )
    assert parse_pipeline(text).passes == (
        FoldConstants(10, frozenset({"DequantizeLinear", "ingot.Dequantize"})),
        SimplifyAlgebra(approximate=False, dots=DType.UINT8),
        HalveWeights((DType.BFLOAT16,)),
        Fuse(prologues=True, most_nodes=8),
        TileBatch(Costs(cache=4096, flops=64, launch=0.5), 1e-3),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fold", "there is no such pass"),
        ("fuse{speed=9}", "fuse has no such option"),
        ("eliminate-dead-code{speed=9}", "has no such option; .* expected none"),
        ("fuse{most_nodes=many}", "fuse.most_nodes is no whole number"),
        ("fuse{most_nodes=8.0}", "fuse.most_nodes is no whole number"),
        ("fuse{most_nodes=true}", "fuse.most_nodes is no whole number"),
        ("fuse{most_nodes=}", "fuse.most_nodes is no whole number"),
        ("fuse{merge=yes}", "fuse.merge is no truth value"),
        ("fuse{merge=1}", "fuse.merge is no truth value"),
        ("fuse{merge=true,merge=true}", "fuse.merge is given twice"),
        ("fuse}", "a list of passes is malformed"),
        ("fuse{", "a list of passes is malformed"),
        ("fuse{merge}", "a list of passes is malformed"),
        ("fuse fuse", "a list of passes is malformed"),
        ("fuse,,fuse", "a list of passes is malformed"),
        ("tile-batch{costs=1}", "tile-batch.costs has fields of its own"),
        ("tile-batch{costs=(1)}", "tile-batch.costs has fields of its own"),
        ("tile-batch{costs={cache=large}}", "tile-batch.costs.cache is no whole number"),
        ("tile-batch{costs={speed=1}}", "tile-batch.costs has no such option"),
        ("tile-batch{costs={flops=0}}", "tile-batch.costs.flops is out of its limits"),
        ("tile-batch{least_share=nan}", "tile-batch.least_share is out of its limits"),
        ("halve-weights{dtypes=float16}", "halve-weights.dtypes is no list of values"),
        ("halve-weights{dtypes=(half)}", "halve-weights.dtypes is no element type"),
        ("halve-weights{dtypes=(float64)}", "halve-weights.dtypes is out of its limits"),
        ("multiply-bytes{data=none}", "multiply-bytes.data is no element type"),
        ("multiply-bytes{data=float32}", "multiply-bytes.data is out of its limits"),
        ("simplify-algebra{dots=float32}", "simplify-algebra.dots is out of its limits; .* expected uint8, int8, none"),
        ('fold-constants{keeps=("a\\c")}', "fold-constants.keeps is no name"),
        ("fuse{most_nodes=" + "9" * 5000 + "}", "fuse.most_nodes is no whole number"),
        ("fold-constants{keeps=(a b)}", "a list of passes is malformed"),
        ("split-concatenations{most=1}", "split-concatenations.most is out of its limits; .* expected at least 2"),
        ("pad-rows{way=0}", "pad-rows.way is out of its limits"),
        ("fuse,choose-layout", "pass 'choose-layout' must not find grouped"),
    ],
)
def test_wrong_passes_are_refused(text: str, message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        parse_pipeline(text)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_limits_hold_for_passes_that_are_made_in_code() -> None:
    with pytest.raises(IngotError, match=r"split-concatenations\.most is out of its limits"):
        SplitConcatenations(most=0)


# -- random options


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of the kind that an annotation names, most of them within limits."""
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(0, 4) | st.integers(0, 1 << 20)
    if kind is float:
        return st.floats(0, 4, allow_nan=False) | st.integers(1, 100).map(float)
    if kind is DType:
        return st.sampled_from([DType.UINT8, DType.INT8])
    if kind is str:
        return st.sampled_from(["Conv", "ingot.Dims", "two words", 'a"b\\', "", "(,)"])
    if typing.get_origin(kind) is frozenset:
        return st.frozensets(_values(typing.get_args(kind)[0]), max_size=3)
    if typing.get_origin(kind) is tuple:
        return st.lists(st.sampled_from([DType.FLOAT16, DType.BFLOAT16]), max_size=2, unique=True).map(tuple)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return st.fixed_dictionaries(_fields(kind)).map(lambda values: kind(**values))
    return st.none() | _values(next(k for k in typing.get_args(kind) if k is not type(None)))


def _fields(kind: Any) -> dict[str, st.SearchStrategy[Any]]:
    kinds = typing.get_type_hints(kind)
    return {f.name: _values(kinds[f.name]) for f in dataclasses.fields(kind)}


@st.composite
def passes_with_options(draw: st.DrawFn) -> Pass | IngotError:
    """Some pass with random options, or the error that says why they cannot be."""
    kind = PASSES[draw(st.sampled_from(sorted(PASSES)))]
    values = draw(st.fixed_dictionaries(_fields(kind)))
    try:
        return kind(**values)
    except IngotError as error:
        return error


@settings(deadline=None, max_examples=300)
@given(item=passes_with_options())
def test_any_options_read_back_or_are_refused(item: Pass | IngotError) -> None:
    if isinstance(item, IngotError):
        assert item.code is ErrorCode.INVALID_ARGUMENT
    else:
        assert parse_pipeline(str(item)).passes == (item,)


@settings(deadline=None, max_examples=60)
@given(items=st.lists(passes_with_options(), max_size=3))
def test_passes_run_with_any_options(items: list[Pass | IngotError]) -> None:
    """What an option admits breaks no pass; each stands where the default pipeline has it."""
    given_options = {i.name: i for i in items if isinstance(i, Pass)}
    pipeline = Pipeline(tuple(given_options.get(p.name, p) for p in default_pipeline(3).passes))
    before = graph(NETWORK)
    assert_same(before, pipeline.run_graph(before, PassContext(instruments=(Verify(),))))
