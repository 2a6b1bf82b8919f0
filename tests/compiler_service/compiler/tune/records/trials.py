"""Trials that nobody ran."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from compiler_service.compiler.schedule.language.steps import Reorder, Split, Vectorize
from compiler_service.compiler.tune.measuring.trial import OutcomeKind
from compiler_service.compiler.tune.records.record import TrialRecord, Workload
from compiler_service.compiler.version import compiler_version
from shared_ir.machine.target import parse_target

TARGET = parse_target("x86-64-v3")
OTHER = parse_target("aws/graviton3")
TEXT = "%0 = argument float32[{}, 64]\n%1[m]: float32[{}] = sum(k < 64) %0[m, k]\nconstant: (False,)"
SCHEDULE = (Split("y", "m", 8), Reorder("y", ("m.8", "m")), Vectorize("y", "m"))


def workload(size: int = 128) -> Workload:
    return Workload.of(TEXT.format(size, size), "ReduceSum")


def trial(of: Workload | None = None, **changes: Any) -> TrialRecord:
    """Of a schedule that was measured to be faster than the default, by this compiler."""
    about = of or workload()
    fields: dict[str, Any] = {
        "workload": about.digest,
        "family": about.family,
        "sizes": about.sizes,
        "label": about.label,
        "target": str(TARGET),
        "machine": "a machine; LLVM 22",
        "compiler": compiler_version(),
        "methods": (),
        "rule": "row",
        "values": {"rows": 8, "order": ("m", "k")},
        "schedules": (SCHEDULE,),
        "outcome": OutcomeKind.MEASURED,
        "seconds": 1e-3,
        "spread": 1e-5,
        "default_seconds": 2e-3,
        "default_spread": 1e-5,
        "time": 1.0,
    }
    return TrialRecord(**{**fields, **changes})


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_times = st.floats(0, 1e9, allow_nan=False)
_answers = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | _texts,
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
_splits = st.builds(Split, _texts, _texts, st.integers(1, 64))
_schedules = st.lists(st.one_of(_splits, st.builds(Vectorize, _texts, _texts)), max_size=3).map(tuple)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _texts, lambda inner: st.lists(inner, max_size=2), max_leaves=3
)

trials = st.builds(
    TrialRecord,
    workload=_texts,
    family=_texts,
    sizes=st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    label=_texts,
    target=st.sampled_from([str(TARGET), str(OTHER)]),
    machine=_texts,
    compiler=st.sampled_from(["old", compiler_version()]),
    methods=st.lists(_texts, max_size=2).map(tuple),
    rule=_texts,
    values=st.dictionaries(_texts, _answers, max_size=3),
    schedules=st.lists(_schedules, max_size=2).map(tuple),
    outcome=st.sampled_from(OutcomeKind),
    seconds=st.floats(1e-9, 1e9),
    spread=_times,
    default_seconds=_times,
    default_spread=_times,
    confirmed=st.just(False),
    output=_texts,
    time=_times,
    others=st.dictionaries(st.just("added later"), _json, max_size=1),
)
"""Any that can be written."""
