"""Which of many alike cases belong to the quick set."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def every(cases: Iterable[Any], *, quick: Collection[Any]) -> list[Any]:
    """All ``cases``, those that are not among the ``quick`` ones marked slow. Of several parts the quick ones have every value."""
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
