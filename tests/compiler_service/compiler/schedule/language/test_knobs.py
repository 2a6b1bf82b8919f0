"""Knobs: asked without values a template takes what its model says; with values, another point of the same space."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.schedule.language.knobs import Knob, Knobs, Value, Values
from shared_ir.errors import ErrorCode, IngotError


def template(knobs: Knobs) -> tuple[Value, ...]:
    """A knob of every kind; there is one more where the first is answered so."""
    rows = knobs.choice("rows", (4, 6, 8, 14), 8)
    chunk = knobs.split("chunk", 3136, 32 * rows, multiple=rows)
    tile = knobs.choice("tile", ((1, 2), (2, 2)), (1, 2))
    ahead = knobs.flag("ahead", default=True)
    turns = knobs.range("turns", 1, 7, 3, step=2) if rows == 4 else 0
    return rows, chunk, tile, ahead, turns


def at_random(seed: int) -> Knobs:
    rng = random.Random(seed)
    return Knobs(otherwise=lambda knob: rng.choice(knob.options))


def read_back(values: Values) -> dict[str, Value]:
    """As a record has it, whose lists are tuples."""

    def tuples(value: object) -> Value:
        return tuple(map(tuples, value)) if isinstance(value, list) else value  # type: ignore[return-value]

    return {name: tuples(value) for name, value in json.loads(json.dumps(dict(values))).items()}


def test_without_values_a_template_takes_what_the_model_says() -> None:
    knobs = Knobs()
    assert template(knobs) == (8, 256, (1, 2), True, 0)
    assert knobs.values == {}
    assert list(knobs.asked) == ["rows", "chunk", "tile", "ahead"]


@given(st.integers(0, 1 << 30))
def test_a_point_is_its_values(seed: int) -> None:
    first = at_random(seed)
    found = template(first)
    again = Knobs(read_back(first.values))
    assert template(again) == found
    assert again.values == first.values


def test_answers_that_are_no_options_are_those_of_the_model() -> None:
    knobs = Knobs({"rows": 5, "chunk": "many", "tile": (3, 3), "ahead": 1, "nothing of the kind": 3})
    assert template(knobs) == (8, 256, (1, 2), True, 0)
    assert knobs.values == {}


def test_an_answer_may_no_longer_fit_where_another_has_changed() -> None:
    assert template(Knobs({"chunk": 8 * 49}))[1] == 8 * 49
    assert template(Knobs({"rows": 14, "chunk": 8 * 47}))[1] == 14 * 32
    assert template(Knobs({"rows": 4, "turns": 5}))[-1] == 5
    assert template(Knobs({"turns": 5}))[-1] == 0


def test_neighbours_stand_beside_what_was_taken() -> None:
    assert Knob("rows", (4, 6, 8, 14), 8, 8).neighbours == (6, 14)
    assert Knob("rows", (4, 6, 8, 14), 8, 4).neighbours == (6,)
    assert Knob("rows", (4, 6, 8, 14), 8, 14).neighbours == (8,)


def test_a_knob_of_one_option_is_none() -> None:
    knobs = Knobs(otherwise=lambda knob: pytest.fail(f"asked for {knob.name}"))
    assert knobs.choice("rows", (), 3) == 3
    assert knobs.split("chunk", 1, 1) == 1
    assert not knobs.asked


def test_a_knob_asked_for_twice_has_one_answer() -> None:
    knobs = Knobs({"rows": 6})
    assert [knobs.choice("rows", (4, 6), 4), knobs.choice("rows", (4, 6), 6)] == [6, 6]


def test_a_knob_asked_for_twice_with_other_options_is_refused() -> None:
    knobs = Knobs()
    knobs.choice("rows", (4, 6), 4)
    with pytest.raises(IngotError, match="the knob 'rows' is asked for twice") as caught:
        knobs.choice("rows", (4, 8), 4)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == "rows"


def test_parts_of_a_template_have_knobs_of_their_own() -> None:
    knobs = Knobs({"left.rows": 6, "right.rows": 5, "right.inner.rows": 9})
    assert knobs.within("left").choice("rows", (4, 6), 4) == 6
    assert knobs.within("right").choice("rows", (3, 5), 3) == 5
    assert knobs.within("right").within("inner").choice("rows", (7, 9), 7) == 9
    assert knobs.choice("rows", (1, 2), 1) == 1
    assert list(knobs.asked) == ["left.rows", "right.rows", "right.inner.rows", "rows"]
    assert knobs.values == {"left.rows": 6, "right.rows": 5, "right.inner.rows": 9}


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 6), st.integers(0, 1 << 30))
def test_splits_are_multiples_and_none_goes_past_the_end(extent: int, multiple: int, wanted: int, seed: int) -> None:
    knobs = at_random(seed)
    default = min(wanted, -(-extent // multiple)) * multiple
    knobs.split("chunk", extent, default, multiple=multiple)
    options = knobs.asked["chunk"].options if knobs.asked else (default,)
    whole = -(-extent // multiple) * multiple
    assert all(isinstance(n, int) and n % multiple == 0 and 0 < n <= whole for n in options)
    assert whole in options
    assert default in options


def test_a_split_has_a_limit() -> None:
    knobs = Knobs()
    knobs.split("chunk", 640, 64, multiple=16, most=128)
    assert knobs.asked["chunk"].options == (16, 32, 48, 64, 80, 96, 112, 128)


def test_candidates_are_narrowed_down_one_attribute_after_the_other() -> None:
    found = [(3.0, (2, 8)), (1.0, (4, 8)), (2.0, (4, 16)), (1.5, (2, 4))]

    def ask(values: Values) -> tuple[tuple[int, int], Knobs]:
        knobs = Knobs(values)
        return knobs.narrowed(found, rows=lambda c: c[0], columns_of_it=lambda c: c[1]), knobs

    assert ask({})[0] == (4, 8)
    assert ask({"rows": 2})[0] == (2, 4)
    chosen, knobs = ask({"rows": 2, "columns of it": 8})
    assert chosen == (2, 8)
    assert knobs.asked["columns of it"].options == (4, 8)
    assert ask({"rows": 2, "columns of it": 16})[0] == (2, 4)


def nested(depth: int) -> tuple[Any, ...]:
    found: tuple[Any, ...] = ()
    for _ in range(depth):
        found = (found,)
    return found


@pytest.mark.parametrize(
    "option",
    [0.5, [1], None, (1, (2.0,)), print, nested(10), nested(100_000), 2**63, -(10**5000), ("a", "\ud800")],
    ids=lambda option: type(option).__name__,
)
def test_an_option_that_no_record_can_hold_is_refused(option: Any) -> None:
    with pytest.raises(IngotError) as caught:
        Knobs().choice("size", (option, 1), default=1)
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, "size")


@pytest.mark.parametrize("name", ["\ud800", "rows \udfff"])
def test_a_name_that_no_record_can_hold_is_refused(name: str) -> None:
    with pytest.raises(IngotError) as caught:
        Knobs().flag(name, default=False)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert str(caught.value).isprintable()


def test_options_may_be_nested() -> None:
    assert Knobs({"order": (("i", ("j",)), 2)}).choice("order", (1, (("i", ("j",)), 2)), default=1) == (
        ("i", ("j",)),
        2,
    )


@pytest.mark.parametrize(
    "ask",
    [
        lambda knobs: knobs.range("size", -(2**63) + 1, 2**63 - 1, 8),
        lambda knobs: knobs.range("size", 1, 10**5000, 8),
        lambda knobs: knobs.range("size", 1, 8, 8, step=0),
        lambda knobs: knobs.range("size", 1.5, 8, 8),
        lambda knobs: knobs.range("size", 1, 10**9, 8),
        lambda knobs: knobs.split("size", 64, "8"),
        lambda knobs: knobs.split("size", 64, 8, multiple=0),
        lambda knobs: knobs.split("size", 64, 8, most=None),
    ],
)
def test_a_knob_that_cannot_be_asked_for_is_refused(ask: Callable[[Knobs], int]) -> None:
    with pytest.raises(IngotError) as caught:
        ask(Knobs())
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == "size"
