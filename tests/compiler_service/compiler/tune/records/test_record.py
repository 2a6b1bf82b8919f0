"""What workloads have in common, how far they are apart, and which candidates are one."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from compiler_service.compiler.schedule.language.steps import Split
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.record import Workload, candidate_digest, distance
from tests.compiler_service.compiler.tune.records.trials import SCHEDULE, trial, workload

_sizes = st.integers(0, 10**6)


def test_a_family_differs_in_whole_numbers_alone() -> None:
    one, other = workload(128), workload(3000)
    assert one.family == other.family
    assert one.digest != other.digest
    assert (one.sizes, other.sizes) == ((128, 64, 128, 64), (3000, 64, 3000, 64))


def test_names_types_and_tensors_are_no_sizes() -> None:
    found = Workload.of("%12[i0]: float32[d1, 7] = %3[i0 + 2] * 1.5 + 1e-05", "Mul")
    assert found.sizes == (7, 2)
    assert found.family != Workload.of("%12[i0]: float16[d1, 7] = %3[i0 + 2] * 1.5 + 1e-05", "Mul").family
    assert found.family == Workload.of("%12[i0]: float32[d1, 9] = %3[i0 + 5] * 0.5 + 1e-12", "Mul").family


def test_extents_of_symbols_are_sizes_that_come_last() -> None:
    assert Workload.of("float32[d0, 8]", "Add", (3, 64)).sizes == (8, 3, 64)


@given(_sizes, _sizes, _sizes)
def test_distance_is_a_metric(a: int, b: int, c: int) -> None:
    one, two, three = workload(a), workload(b), workload(c)
    assert distance(one, one) == 0
    assert distance(one, two) == distance(two, one) >= 0
    assert distance(one, three) <= distance(one, two) + distance(two, three) + 1e-9


def test_twice_is_as_far_as_half() -> None:
    assert distance(workload(64), workload(128)) == distance(workload(128), workload(256)) == 2


def test_other_families_and_ranks_are_nowhere_near() -> None:
    longer = replace(workload(), sizes=(1, 2, 3))
    assert distance(workload(), longer) == math.inf
    assert distance(workload(), Workload.of("something else 1 2 3 4", "x")) == math.inf


def test_a_schedule_of_a_rule_is_one_candidate_whatever_knobs_led_to_it() -> None:
    same = [candidate_digest((SCHEDULE,), rule, values) for rule, values in (("row", {}), ("window", {"rows": 4}))]
    assert len(set(same)) == 1
    assert candidate_digest(((Split("y", "m", 4),),), "row", {}) != same[0]


def test_a_program_is_what_its_generator_decided() -> None:
    assert candidate_digest((SCHEDULE,), "sketch", {"a": 1}) != candidate_digest((SCHEDULE,), "sketch", {"a": 2})
    assert candidate_digest((), "row", {"a": 1}) != candidate_digest((), "row", {"a": 2})


def test_what_was_not_compared_has_no_share() -> None:
    assert trial().share == 0.5
    assert trial(default_seconds=0.0).share == math.inf
    assert trial(outcome=OutcomeKind.WRONG).share == math.inf
