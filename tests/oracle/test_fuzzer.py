"""The fuzzer itself: choices replay, cases shrink and are kept, votes are counted, limits and inventory are complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import ingot
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from shared_ir.errors import ErrorCode, IngotError
from tests.oracle.case import LAYOUTS, Case, lay_out
from tests.oracle.draw import Draw
from tests.oracle.families import FAMILIES
from tests.oracle.generate import drawn_case, replayed_case
from tests.oracle.judge import judge, plain
from tests.oracle.limits import limit_of
from tests.oracle.shrink import shrink
from tests.oracle.vote import agree, close, difference
from tests.oracle.workers import Task, asked


def test_a_seed_is_one_case_and_its_choices_replay() -> None:
    (one, trail), (other, _) = drawn_case("Conv", 7), drawn_case("Conv", 7)
    replayed, again = replayed_case("Conv", trail)
    assert one.text() == other.text() == replayed.text()
    assert trail == again


def test_choices_that_lack_are_the_plainest() -> None:
    draw = Draw(trail=[5])
    assert [draw.choose("abc"), draw.choose("abc"), draw.integer(2, 9)] == ["c", "a", 2]
    assert draw.trail == [2, 0, 0]


def test_a_smaller_case_fails_alike() -> None:
    def has_symbols(case: Case) -> bool:
        return any(d.dim_param for i in case.model.graph.input for d in i.type.tensor_type.shape.dim)

    seed = next(s for s in range(99) if has_symbols(drawn_case("Add", s)[0]))
    _, trail = drawn_case("Add", seed)
    case, small = shrink("Add", trail, has_symbols)
    assert has_symbols(case)
    assert len(small) <= len(trail)
    assert sum(small) < sum(trail)


def test_a_case_is_kept_as_it_is(tmp_path: Path) -> None:
    case, _ = drawn_case("Softmax", 3)
    case.save(tmp_path / "x.json", signature="wrong: wrong")
    read = Case.load(tmp_path / "x.json")
    assert read.text() == case.text()
    assert read.levels == case.levels
    assert all(np.array_equal(a[n], b[n], equal_nan=True) for a, b in zip(read.runs, case.runs, strict=True) for n in b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_layouts_keep_elements(layout: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    laid = lay_out(array, layout)
    assert laid.shape == shape
    assert np.array_equal(laid, array)
    if layout == "reversed" and array.size > 1:
        assert all(s < 0 for s, e in zip(laid.strides, shape, strict=True) if e > 1)


def test_votes() -> None:
    one, near = np.array([1.0, np.nan, 2e3], np.float32), np.array([1.00001, np.nan, 2e3], np.float32)
    assert agree([one], [near])
    assert not close(one, one.astype(np.float64))
    assert not close(one, np.array([np.nan, 1, 2e3], np.float32))
    small, off = np.array([1e-3, 1e3], np.float32), np.array([2e-3, 1e3], np.float32)
    assert close(small, off)
    assert not close(small, off, pointwise=True)
    assert "[0]" in difference([small], [off], pointwise=True)


def test_messages_without_names_and_numbers() -> None:
    texts = [f"node 'v{i}': d{i} must be x{i}_1; expected {i}, received [{i}, 3]" for i in (4, 17)]
    assert plain(texts[0]) == plain(texts[1])


def test_only_stated_limits_excuse_a_refusal() -> None:
    model = _reshaping(4)
    assert limit_of(IngotError(ErrorCode.UNSUPPORTED_DTYPE, "int4"), model)
    assert limit_of(IngotError(ErrorCode.INVALID_ARGUMENT, "something else"), model) is None
    assert (
        limit_of(IngotError(ErrorCode.INVALID_ARGUMENT, "node 'y': a must be b; expected 0, received 4."), model)
        is None
    )
    unfit = IngotError(ErrorCode.INVALID_ARGUMENT, "node 'y': n must be 1 or 2; expected 2, received 3.")
    assert limit_of(unfit, model) is None
    assert limit_of(unfit, model, {"ONNX Runtime"}) is None
    assert limit_of(unfit, model, {"onnx.reference"})


@pytest.mark.parametrize("rest", [(), (4,), (-1,)])
def test_a_calculated_size_of_0_is_a_limit_and_another_is_none(rest: tuple[int, ...]) -> None:
    model = _reshaping(*rest)
    compiled = ingot.load(ingot.compile(model))
    x = np.ones((2, 4), np.float32)
    for count, excused in ((0, True), (3, False)):
        with pytest.raises(IngotError) as caught:
            compiled.run({"x": x, "y": np.ones(count, np.float32)})
        assert bool(limit_of(caught.value, model)) is excused


def _reshaping(*rest: int) -> onnx.ModelProto:
    """``y`` and ``rest`` are the shape of ``z``."""
    numbers = ", ".join(map(str, rest))
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n, k] x, float[m] y) => (z) <int64[{len(rest)}] rest = {{{numbers}}}> {{
            some = Shape(y)
            shape = Concat<axis=0>(some, rest)
            z = Reshape(x, shape)
        }}"""
    )


def test_every_operator_of_the_inventory_is_drawn() -> None:
    standard = {name for name in OPERATORS if "." not in name}
    assert standard - set(FAMILIES) == NOT_DRAWN & standard


NOT_DRAWN: frozenset[str] = frozenset()
"""Of the inventory, what no family draws: helpers that no model can name, and what has a generator elsewhere."""


def test_a_case_is_asked_in_all_its_ways() -> None:
    outcome = asked(Task("Relu", 0))
    assert outcome.answered
    assert not outcome.findings
    assert not judge(drawn_case("Relu", 0)[0]).findings
