"""Runs that compiled code answers and both oracles refuse."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from tests.oracle.forbidden.answers import Feeds, compiled_answers, reference_answers, runtime_answers
from tests.oracle.forbidden.runs import Published


def accepted(case: Published) -> list[str]:
    """What should be refused of ``case``; nothing where not both oracles answer it as it is published."""
    runs = case.runs()
    feeds = [f for _, f in runs]
    opinions = [runtime_answers(case.model, feeds), reference_answers(case.model, feeds)]
    if not all(answers[0] for answers in opinions):
        return []
    own = compiled_answers((case.model, case.fixed), feeds)
    excused = EXCUSED.get(case.op, _never)
    return [
        f"{case.name}: {label}: {answer}"
        for (label, run), answer, *answered in zip(runs, own, *opinions, strict=True)
        if answer and not any(answered) and not excused(run)
    ]


def _never(_: Feeds) -> bool:
    return False


def _cuts(feeds: Feeds) -> bool:
    """numpy pads by no negative width at all, and ONNX Runtime mirrors no more than there is, of any axis."""
    return bool((feeds["pads"] < 0).any())


EXCUSED: MappingProxyType[str, Callable[[Feeds], bool]] = MappingProxyType({"Pad": _cuts})
"""By operator: runs that each oracle refuses for a reason that is not the other's."""
