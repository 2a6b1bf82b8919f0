"""What a stage that checked a model reports. It had read a foreign model, which may have written the report itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from compiler_service.stages.outcome import StageError, bounded, senseless

MOST_ISSUE_CHARACTERS = 1 << 20
"""Of all issues together: they travel in one message, beside the rest of the report."""
_MOST = 1 << 63


def read_check(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The report in an answer of the stage ``check``, with the fields of ``check_to_dict`` and no others.

    Of issues without end the first are kept.

    Raises:
        IngotError: COMPILER_FAULT where it makes no sense.
    """
    try:
        report = answer["report"]
        counts = {name: _map(report[name], _is_count) for name in ("opsets", "operators")}
        texts = {name: _map(report[name], _is_text) for name in ("inputs", "outputs")}
        return {**counts, **texts, "issues": [issue.to_dict() for issue in _kept(report["issues"])]}
    except (ValueError, LookupError, TypeError, AttributeError) as fault:
        raise senseless(f"no report of a check ({type(fault).__name__})") from fault


def issues(report: Mapping[str, Any]) -> Sequence[StageError]:
    """What keeps the model from being compiled, by a report of :func:`read_check`: the word of the stage, and no error of its worker's."""
    return [StageError.from_dict(issue) for issue in report["issues"]]


def _kept(found: Sequence[Mapping[str, Any]]) -> Sequence[StageError]:
    read = [bounded(issue) for issue in found]
    sizes = accumulate(sum(map(len, issue.to_dict().values())) for issue in read)
    return [issue for issue, size in zip(read, sizes, strict=True) if size <= MOST_ISSUE_CHARACTERS]


def _map(found: Mapping[str, Any], fits: Callable[[Any], bool]) -> dict[str, Any]:
    if not all(map(fits, found.values())):
        raise ValueError
    return dict(found)


def _is_count(value: Any) -> bool:
    return type(value) is int and abs(value) < _MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
