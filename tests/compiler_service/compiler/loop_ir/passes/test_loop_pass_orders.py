"""Legal orders of the passes over loops give equal results; others are refused with both names."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from compiler_service.compiler.loop_ir.ir import Function
from compiler_service.compiler.loop_ir.passes import LOOP_PASSES
from compiler_service.compiler.loop_ir.pipeline import LoopFact, LoopPass, LoopPipeline
from compiler_service.compiler.loop_ir.text import print_function
from compiler_service.compiler.loop_ir.verify import verify
from shared_ir.errors import ErrorCode, IngotError
from tests.compiler_service.compiler.loop_ir.loop_checks import outputs
from tests.compiler_service.compiler.loop_ir.loop_programs import (
    convolution,
    guarded_scale,
    padded_copy,
    register_tiled_matmul,
    row_sums,
    slice_copy,
)
from tests.compiler_service.compiler.loop_ir.passes.test_loop_passes_random import Program, functions, results

PROGRAMS: dict[str, tuple[Callable[[], Function], dict[str, int]]] = {
    "guarded_scale": (guarded_scale, {"n": 37}),
    "register_tiled_matmul": (register_tiled_matmul, {"m": 2, "k": 3}),
    "convolution": (lambda: convolution(rows=2, nr=8, lanes=4, height=4, channels=4, unrolled=2), {"n": 2}),
    "padded_copy": (padded_copy, {"h": 3}),
    "row_sums": (row_sums, {"n": 9}),
    "slice_copy": (slice_copy, {"n": 3, "w": 11}),
}
PASSES = {item.name: item for item in LOOP_PASSES}


@st.composite
def legal_orders(draw: st.DrawFn) -> tuple[LoopPass, ...]:
    """Every pass at least once, some again, in a random order that what they declare admits."""
    again = draw(st.lists(st.sampled_from(sorted(PASSES)), max_size=5))
    left = [PASSES[name] for name in (*PASSES, *again)]
    order: list[LoopPass] = []
    given: frozenset[LoopFact] = frozenset()
    while left:
        coming = frozenset().union(*(p.gives for p in left)) - given
        barred = frozenset().union(*(p.forbids for p in left))
        free = [p for p in left if not p.needs & coming and not (p.gives - given) & barred]
        item = draw(st.sampled_from(free))
        left.remove(item)
        order.append(item)
        given |= item.gives
    return tuple(order)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(order=legal_orders())
def test_legal_orders_give_equal_results(name: str, order: tuple[LoopPass, ...]) -> None:
    program, symbols = PROGRAMS[name]
    before = program()
    after = LoopPipeline(order).run(before, verifies=True)
    verify(after, flat=True)
    for wanted, found in zip(outputs(before, symbols), outputs(after, symbols), strict=True):
        np.testing.assert_array_equal(wanted, found, err_msg=print_function(after))


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(program=functions().map(Program), order=legal_orders(), n=st.integers(1, 4))
def test_legal_orders_give_equal_results_on_random_programs(
    program: Program, order: tuple[LoopPass, ...], n: int
) -> None:
    after = LoopPipeline(order).run(program.function, verifies=True)
    verify(after, flat=True)
    for wanted, found in zip(results(program.function, n), results(after, n), strict=True):
        np.testing.assert_array_equal(wanted, found, err_msg=print_function(after))


def refusal(*names: str) -> IngotError | None:
    try:
        LoopPipeline(tuple(PASSES[name] for name in names))
    except IngotError as error:
        return error
    return None


def test_an_illegal_order_is_refused_with_both_names() -> None:
    refused = 0
    for first, second in itertools.permutations(PASSES, 2):
        error = refusal(first, second)
        if error is not None:
            refused += 1
            assert error.code is ErrorCode.INVALID_ARGUMENT
            assert {f"'{first}'", f"'{second}'"} <= set(error.message.replace(",", " ").split())
            assert refusal(second, first) is None, "two passes that have no order"
    assert refused > len(PASSES)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("flatten", "skip", "pass 'skip' must not find flat and comes behind pass 'flatten', which gives it"),
        ("unroll", "partition", "pass 'partition' must not find unrolled"),
        ("vectorize", "skip", "pass 'skip' must not find vectorized"),
        ("shuffle", "flatten", "pass 'shuffle' needs flat and comes before pass 'flatten', which gives it"),
        ("unroll", "simplify", "pass 'unroll' needs simplified"),
        ("checkpoints", "start", "pass 'start' must not find checkpointed"),
    ],
)
def test_orders_that_would_do_nothing_or_the_wrong_thing(first: str, second: str, why: str) -> None:
    error = refusal(first, second)
    assert error is not None
    assert why in error.message


def test_every_pass_is_needed_or_gives_something_somewhere() -> None:
    """The declarations name every fact, and each fact has one giver."""
    givers = {fact: [item.name for item in LOOP_PASSES if fact in item.gives] for fact in LoopFact}
    asked = frozenset().union(*(item.needs | item.forbids for item in LOOP_PASSES))
    assert {fact: names for fact, names in givers.items() if len(names) != 1} == {}
    assert asked == frozenset(LoopFact)
