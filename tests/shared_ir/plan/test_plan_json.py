"""Plans in files: what is written is read back as the same objects, older forms too; what is broken is refused by name."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.expr import Binary, BinaryOp, Cast, Const, Expr, Select, Var, walk
from shared_ir.expr.dim import Dim, as_dim, symbol
from shared_ir.plan.dim_table import MAX_ROWS, DimReader, DimWriter
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.plan.program import Plan
from shared_ir.versions import PLAN_VERSION, SUPPORTED_PLAN_VERSIONS
from tests.native_growing import growing_plan
from tests.native_models import toy_plan
from tests.shared_ir.expr.expressions import expressions

OLDER = Path(__file__).parents[2] / "golden" / "plans"
PLANS = {"growing": growing_plan(), "toy": toy_plan()}


def both_ways(dims: list[Dim]) -> list[Dim]:
    writer = DimWriter()
    written = [writer.write(d) for d in dims]
    reader = DimReader(json.loads(json.dumps(writer.rows)))
    return [reader.read(d) for d in json.loads(json.dumps(written))]


@pytest.mark.slow
@given(st.lists(st.one_of(expressions(), expressions(raw=True)), max_size=5))
def test_reading_gives_the_very_objects_that_were_written(exprs: list[Expr]) -> None:
    dims = [int(e.value) if isinstance(e, Const) else e for e in exprs]
    assert all(a is b or (a == b and type(a) is int) for a, b in zip(both_ways(dims), dims, strict=True))


@given(st.lists(expressions(), min_size=1, max_size=5))
def test_every_operation_is_one_row_after_its_operands(exprs: list[Expr]) -> None:
    writer = DimWriter()
    for expr in exprs:
        writer.write(as_dim(expr))
    dims = [d for e in exprs if isinstance(d := as_dim(e), Expr)]
    operations = {node for dim in dims for node in walk(dim) if not isinstance(node, Const | Var)}
    assert len(writer.rows) == len(operations)
    for number, row in enumerate(writer.rows):
        assert all(int(o[1:]) < number for o in row[1:] if isinstance(o, str) and o.startswith("#"))


def test_rows_read_like_sums() -> None:
    n, writer = symbol("n"), DimWriter()
    half = as_dim((n + 1) // 2)
    assert [writer.write(d) for d in (half, 7, n, as_dim(half * 64))] == ["#1", 7, "n", "#2"]
    assert writer.rows == [["+", "n", 1], ["//", "#0", 2], ["*", "#1", 64]]


def test_conditions_stay_conditions() -> None:
    n = symbol("n")
    known = Binary(BinaryOp.AND, Const(True, DType.BOOL), Binary(BinaryOp.LT, n, Const(3)))
    (found,) = both_ways([Select(known, n, Const(0))])
    assert found is Select(known, n, Const(0))


def test_a_long_sum_needs_no_deep_stack() -> None:
    total: Expr = symbol("n")
    for index in range(5000):
        total = Binary(BinaryOp.ADD, total, Var(f"n{index}"))
    assert both_ways([total]) == [total]


@pytest.mark.parametrize("expr", [Cast(DType.INT64, Var("x", DType.INT32)), Var("$i"), Const(1.5, DType.FLOAT32)])
def test_what_is_no_dim_is_not_written(expr: Expr) -> None:
    with pytest.raises(IngotError, match="no dim of a plan") as caught:
        DimWriter().write(expr)
    assert caught.value.code is ErrorCode.COMPILER_FAULT


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"#0": ["+", "n", 1]}, "the table of expressions is none"),
        ([["+", "n", 1]] * (MAX_ROWS + 1), "the table of expressions is none"),
        ([["**", "n", 2]], "a row is no operation"),
        ([["+", "n"]], "a row is no operation"),
        ([["+", "n", 1, 2]], "a row is no operation"),
        ([["div", "n", 2]], "a row is no operation"),
        ([["select", "n", 1]], "a row is no operation"),
        (["n + 1"], "a row is no operation"),
        ([[["+"], "n", 1]], "a row is no operation"),
        ([["+", "#0", 1]], "an integer that is none"),  # a cycle of one row
        ([["+", "#1", 1], ["+", "#0", 1]], "an integer that is none"),  # and of two
        ([["+", "#7", 1]], "an integer that is none"),
        ([["+", "#-1", 1]], "an integer that is none"),
        ([["+", "n n", 1]], "an integer that is none"),
        ([["+", "", 1]], "an integer that is none"),
        ([["+", 1.5, 1]], "an integer that is none"),
        ([["+", True, 1]], "an integer that is none"),
        ([["+", None, 1]], "an integer that is none"),
        ([["+", ["n"], 1]], "an integer that is none"),
        ([["<", "n", 1], ["+", "#0", 1]], "an integer that is none"),
        ([["+", "n", 1], ["and", "#0", "#0"]], "a condition that is none"),
        ([["select", "n", 1, 2]], "a condition that is none"),
        ([["select", ["n"], 1, 2]], "a condition that is none"),
    ],
)
def test_broken_tables_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(IngotError, match=message) as caught:
        DimReader(rows)
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
    assert all((caught.value.expected, caught.value.received, caught.value.remedy))
    if isinstance(rows, list) and len(rows) < MAX_ROWS:
        assert "row #" in caught.value.field


@pytest.mark.parametrize("written", ["#0", "#1", "n + 1", 1.5, None, True, ["n"]])
def test_a_reference_to_no_integer_is_refused(written: Any) -> None:
    with pytest.raises(IngotError, match="an integer that is none"):
        DimReader([["<", "n", 1]]).read(written)


@pytest.mark.parametrize("name", PLANS)
def test_plans_survive_their_json(name: str) -> None:
    text = write_plan(PLANS[name])
    assert read_plan(text) == PLANS[name]
    assert write_plan(read_plan(text)) == text
    assert json.loads(text)["version"] == PLAN_VERSION


@pytest.mark.parametrize(
    ("name", "version"), [(n, v) for n in PLANS for v in SUPPORTED_PLAN_VERSIONS if v != PLAN_VERSION]
)
def test_older_plans_are_read(name: str, version: int) -> None:
    text = (OLDER / f"{name}.v{version}.json").read_text()
    assert json.loads(text)["version"] == version
    assert read_plan(text) == PLANS[name]


def batched_plan() -> Plan:
    """Every first axis is of one symbol, along which rows are proven to be apart."""
    plan = PLANS["toy"]
    first = plan.inputs[0].shape[0]
    outputs = tuple(replace(spec, shape=(first, *spec.shape[1:])) for spec in plan.outputs)
    inputs = tuple(replace(spec, shape=(first, *spec.shape[1:])) for spec in plan.inputs)
    assert isinstance(first, Var)
    return replace(plan, inputs=inputs, outputs=outputs, batch=first.name)


def test_what_is_proven_of_rows_is_kept_and_ignored_by_those_who_do_not_know_it() -> None:
    plan = batched_plan()
    assert read_plan(write_plan(plan)) == plan
    data = json.loads(write_plan(plan))
    assert data.pop("batch") == plan.batch
    assert read_plan(json.dumps(data)) == replace(plan, batch="")
    assert "batch" not in json.loads(write_plan(PLANS["toy"]))


@pytest.mark.parametrize("batch", ["other", 3, None, ["n"], "n + 1"])
def test_a_batch_that_is_not_every_first_axis_is_refused(batch: Any) -> None:
    data = json.loads(write_plan(batched_plan())) | {"batch": batch}
    with pytest.raises(IngotError) as caught:
        read_plan(json.dumps(data))
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT


@pytest.mark.parametrize("version", [0, PLAN_VERSION + 1, "2", None])
def test_plans_of_unknown_versions_are_refused(version: Any) -> None:
    data = json.loads(write_plan(PLANS["toy"])) | {"version": version}
    with pytest.raises(IngotError, match="plan version 2 or 1") as caught:
        read_plan(json.dumps(data))
    assert caught.value.code is ErrorCode.ARTIFACT_INCOMPATIBLE


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key, item in items for p in places(item, (*path, key))]


PLACES = {name: places(json.loads(write_plan(plan))) for name, plan in PLANS.items()}


@given(st.data())
def test_damage_anywhere_is_refused_with_a_typed_error_or_harmless(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(PLANS)))
    document = copy.deepcopy(json.loads(write_plan(PLANS[name])))
    *way, last = data.draw(st.sampled_from(PLACES[name]))
    holder = document
    for key in way:
        holder = holder[key]
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 99), st.floats(), st.text(max_size=3), st.just([]), st.just({})
    )
    if data.draw(st.booleans()):
        holder[last] = data.draw(junk)
    else:
        del holder[last]
    with contextlib.suppress(IngotError):
        assert isinstance(read_plan(json.dumps(document)), Plan)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nul", "[" * 100_000, '{"version": 2}', b"\xff"])
def test_what_is_no_plan_is_refused(text: str | bytes) -> None:
    with pytest.raises(IngotError) as caught:
        read_plan(text)
    assert caught.value.code is ErrorCode.ARTIFACT_CORRUPT
