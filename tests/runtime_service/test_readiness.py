"""The rule by which a server is ready."""

from __future__ import annotations

import pytest

from runtime_service.readiness import ModelStanding, ReadyRule
from runtime_service.settings import RuntimeSettings
from shared_ir.errors import ErrorCode, IngotError

GOOD = ModelStanding(answers=True, is_complete=True, came_later=False)
PARTLY = ModelStanding(answers=True, is_complete=False, came_later=False)
BAD = ModelStanding(answers=False, is_complete=False, came_later=False)
LATE = ModelStanding(answers=False, is_complete=False, came_later=True)
LATE_GOOD = ModelStanding(answers=True, is_complete=True, came_later=True)
GONE = ModelStanding(answers=False, is_complete=True, came_later=True)


@pytest.mark.parametrize(
    ("rule", "models", "tried", "expected"),
    [
        ("all", {}, True, False),
        ("all", {"a": GOOD}, False, True),
        ("all", {"a": GOOD, "b": BAD}, True, False),
        ("all", {"a": GOOD, "b": PARTLY}, True, False),
        ("all", {"a": GOOD, "b": LATE}, True, True),
        ("all", {"b": LATE}, True, False),
        ("all", {"a": LATE_GOOD}, True, True),
        ("all", {"a": GOOD, "b": GONE}, True, False),
        ("any", {}, True, False),
        ("any", {"a": GOOD, "b": BAD}, False, False),
        ("any", {"a": GOOD, "b": BAD}, True, True),
        ("any", {"a": PARTLY}, True, True),
        ("any", {"b": BAD}, True, False),
        ("none", {}, False, False),
        ("none", {}, True, True),
        ("none", {"b": BAD}, True, True),
        ("a", {"a": GOOD, "b": BAD}, False, True),
        ("a", {"a": PARTLY}, True, False),
        ("a", {"b": GOOD}, True, False),
        ("a, b", {"a": GOOD, "b": GOOD}, False, True),
        ("a,b", {"a": GOOD, "b": BAD}, True, False),
    ],
)
def test_a_rule_holds(rule: str, models: dict[str, ModelStanding], tried: bool, expected: bool) -> None:
    assert RuntimeSettings(ready=rule).ready_rule().holds(models, tried) is expected


@pytest.mark.parametrize("text", ["", " ", "a,", "a b", "../a", "*"])
def test_a_rule_that_is_none_is_refused_at_start(text: str) -> None:
    with pytest.raises(IngotError) as caught:
        RuntimeSettings.from_environment({"INGOT_RUNTIME_READY": text})
    assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.field == "INGOT_RUNTIME_READY"


def test_as_before_by_default() -> None:
    assert RuntimeSettings().ready_rule() == ReadyRule("all")
