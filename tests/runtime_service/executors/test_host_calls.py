"""Every function of the executor asks for room before it makes something, and ends in the middle when its run is to end."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from runtime_service.arrays import Array
from runtime_service.executors.calls import FUNCTIONS
from runtime_service.executors.objects import ObjectAllowance
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.regular_expressions import Pattern

MANY = 20_000
SLACK = 1 << 19
"""Bytes of the elements that are made together, and of compiled expressions."""
Given = tuple[tuple[Any, ...], dict[str, Any]]


def texts(*some: str, count: int = MANY) -> Array:
    found = np.empty(count, object)
    for i, text in enumerate(some):
        found[i :: len(some)] = text
    return found


def items(count: int = MANY) -> list[Array]:
    return [np.zeros(3, np.float32)] * count


def tokens(*some: str, count: int = MANY // 4, **attributes: Any) -> Given:
    return (texts(*some, count=count),), {"mark": 1, "mincharnum": 1, "pad_value": "#", **attributes}


LARGE: Mapping[str, tuple[Given, ...]] = {
    "string_concat": (((texts("ab", "é"), texts("x" * 50)), {}),),
    "string_split": (
        ((texts("a b c", ""),), {}),
        ((texts("a,b", "é,"),), {"delimiter": ",", "maxsplit": 1}),
        ((texts("a " * 200_000, count=1),), {}),
    ),
    "string_normalizer": (
        ((texts("ab", "ß"),), {"case_change_action": "UPPER", "stopwords": ["c"]}),
        ((texts("stop", "AB"),), {"case_change_action": "LOWER", "stopwords": ["stop"]}),
    ),
    "tokenizer": (
        tokens("ab", "éa", separators=[""]),
        tokens("ab cd,e", "x", separators=[" ", ","]),
        tokens("ab cd", "", tokenexp="[a-z]+"),
        tokens("ab " * 40_000, count=1, separators=[" "]),
        tokens("é" * 100_000, count=1, separators=[""]),
    ),
    "regex_full_match": (((texts("aaa", "b"),), {"pattern": "a+"}),),
    "string_of": (
        ((np.arange(MANY, dtype=np.int64) - 10,), {}),
        ((np.linspace(-1e9, 1e-9, MANY, dtype=np.float32),), {}),
        ((np.zeros(MANY, np.bool_),), {}),
        ((np.linspace(-1e300, 1e300, MANY),), {}),
    ),
    "number_of": (
        ((texts("1.5", "nan"),), {"dtype": np.dtype(np.float32)}),
        ((texts("12", " 7e3 "),), {"dtype": np.dtype(np.int64)}),
    ),
    "sequence_construct": ((tuple(items(1000)), {}),),
    "sequence_insert": (((items(), np.zeros(MANY), np.array(7)), {}),),
    "sequence_erase": (((items(), np.array(7)), {}),),
    "sequence_concat": (((items(),), {"axis": 0, "new_axis": 0}), ((items(),), {"axis": 1, "new_axis": 1})),
    "split_to_sequence": (
        ((np.zeros((2, MANY), np.float32),), {"axis": 1, "keepdims": 0}),
        ((np.zeros(MANY), np.array(7)), {"axis": -1, "keepdims": 1}),
        ((np.zeros(MANY), np.ones(MANY, np.int64)), {"axis": 0, "keepdims": 1}),
    ),
    "zip_map": (
        ((np.zeros((MANY, 2), np.float32),), {"labels": [0, 1]}),
        ((np.zeros((1500, 20), np.float32),), {"labels": list(range(20))}),
    ),
    "optional": (((np.zeros(MANY),), {}),),
}
"""What each is given to make much of."""
MAKE_NOTHING = {"sequence_at", "sequence_length", "nothing", "required", "extents", "tensor"}
"""They hand on what is there, or a number."""
AT_ONCE = {"sequence_insert", "sequence_erase", "sequence_concat", "optional"}
"""One call into C each, of memory that they have asked for."""


def _cases() -> Iterator[Any]:
    for name, given in LARGE.items():
        for i, one in enumerate(given):
            yield pytest.param(name, one, id=f"{name}-{i}")


CASES = list(_cases())
Pattern("a", "pattern")  # what this imports is not of a call


class Measured(ObjectAllowance):
    """What was allocated since its begin may at no question be more than what was taken before."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        tracemalloc.start()
        self._start = tracemalloc.get_traced_memory()[0]
        self.beyond = self.looks = 0

    def take(self, size: int) -> None:
        self.look()
        super().take(size)

    def look(self) -> None:
        self.looks += 1
        self.beyond = max(self.beyond, tracemalloc.get_traced_memory()[1] - self._start - self.taken)


def test_all_functions_are_tried_here() -> None:
    assert set(LARGE) | MAKE_NOTHING == set(FUNCTIONS)
    assert not set(LARGE) & MAKE_NOTHING


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "given"), CASES)
def test_room_is_asked_for_before_things_are_made(name: str, given: Given) -> None:
    arguments, attributes = given
    room = Measured()
    try:
        FUNCTIONS[name](*arguments, **attributes, room=room)
        room.look()
    finally:
        tracemalloc.stop()
    assert room.taken >= MANY
    assert room.beyond < SLACK


@pytest.mark.parametrize(("name", "given"), CASES)
def test_what_has_no_room_is_not_made(name: str, given: Given) -> None:
    arguments, attributes = given

    def require(size: int) -> None:
        if size > MANY // 4:
            raise IngotError(ErrorCode.RESOURCE_EXHAUSTED, "no room")

    tracemalloc.start()
    try:
        with pytest.raises(IngotError) as caught:
            FUNCTIONS[name](*arguments, **attributes, room=ObjectAllowance(require))
        assert tracemalloc.get_traced_memory()[1] < SLACK
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("name", "given"), [p for p in CASES if p.values[0] not in AT_ONCE])
def test_a_run_that_is_to_end_is_asked_for_often(name: str, given: Given) -> None:
    arguments, attributes = given
    asked: list[float] = []

    def require(size: int) -> None:
        asked.append(time.thread_time())

    begun = time.thread_time()
    FUNCTIONS[name](*arguments, **attributes, room=ObjectAllowance(require))
    times = [begun, *asked, time.thread_time()]
    assert max(b - a for a, b in itertools.pairwise(times)) < 0.25
    assert len(asked) > 2


def test_a_function_that_asks_for_nothing_is_found() -> None:
    def greedy(x: Array, *, room: ObjectAllowance) -> Array:
        return np.array([str(value) for value in x.tolist()], object)

    make: Callable[..., Array] = greedy
    room = Measured()
    try:
        make(np.arange(MANY), room=room)
        room.look()
    finally:
        tracemalloc.stop()
    assert room.beyond > SLACK
