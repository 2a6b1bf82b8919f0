"""Which sizes of messages are quick, after which runs."""

from __future__ import annotations

from runtime_service.batching.quick import Quick


def noted(quick: Quick, seconds: float, times: int = 1) -> bool:
    for _ in range(times):
        quick.note("m", 100, seconds)
    return quick.is_quick("m", 100)


def test_some_quick_runs_make_a_size_quick_and_one_that_waited_does_not_end_it() -> None:
    quick = Quick()
    assert not noted(quick, 1e-4, 3)
    assert noted(quick, 1e-4, 5)
    assert not quick.is_quick("m", 101)
    assert noted(quick, 2e-3)
    assert not noted(quick, 2e-3, 2)
    assert not noted(quick, 5e-4, 100)
    assert noted(quick, 1e-4, 4)


def test_a_long_run_has_to_be_made_up_for() -> None:
    """A message of the same size may have another shape, which takes long."""
    quick = Quick()
    assert noted(quick, 1e-4, 100)
    assert not noted(quick, 0.05)
    assert not noted(quick, 1e-3, 3)
    assert not noted(quick, 1e-4, 50)
    assert noted(quick, 1e-4, 4)
