"""Options of a compilation: what is refused, and which methods they leave."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from compiler_service.compiler import pipeline
from compiler_service.compiler.backends.llvm import LlvmBackend
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.pipeline import allowed_methods
from compiler_service.compiler.schedule.default import METHODS, RuleRow
from compiler_service.compiler.schedule.rules.row import row_schedule
from shared_ir.errors import ErrorCode, IngotError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("opt_level", 4),
        ("opt_level", True),
        ("opt_level", 3.0),
        ("tune", -1),
        ("tune", 10**12),
        ("tune", True),
        ("bundle", "zip"),
        ("winograd", 1),
        ("denormals", "no"),
        ("disabled_passes", "fuse"),
        ("speed", 3),
        ("verification", "perhaps"),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(IngotError) as caught:
        CompileOptions.from_dict({name: value})
    assert (caught.value.code, caught.value.field) == (ErrorCode.INVALID_ARGUMENT, name)


def test_options_are_read_back() -> None:
    given = CompileOptions(opt_level=2, shapes={"x": (1, "n", None)}, tune=4, winograd=False, overridable=("w",))
    assert CompileOptions.from_dict(given.to_dict()) == given


def test_workers_of_the_version_before_see_no_option_that_nobody_asked_for() -> None:
    assert "verification" not in CompileOptions().to_dict()
    required = CompileOptions(verification="required")
    assert CompileOptions.from_dict(required.to_dict()) == required


def test_methods_are_the_rows_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one is used without a word elsewhere; an option of its name forbids it."""
    assert allowed_methods(CompileOptions(), LlvmBackend()) == {row.name for row in METHODS}
    assert allowed_methods(CompileOptions(strassen=False), LlvmBackend()) == {row.name for row in METHODS} - {
        "strassen"
    }
    assert allowed_methods(CompileOptions(opt_level=2), LlvmBackend()) == set()
    monkeypatch.setattr(pipeline, "METHODS", (*METHODS, RuleRow("new", row_schedule)))
    assert "new" in allowed_methods(CompileOptions(), LlvmBackend())


@pytest.mark.parametrize("given", [1, 0, "true", None])
def test_an_option_of_a_new_method_is_yes_or_no_without_a_word(given: object) -> None:
    @dataclass(frozen=True)
    class WithNewMethod(CompileOptions):
        new: bool = True

    assert WithNewMethod.from_dict({"new": False}).allows("new") is False
    for name in ("new", *(row.name for row in METHODS)):
        with pytest.raises(IngotError, match=f"the option {name} is yes or no"):
            WithNewMethod.from_dict({name: given})
