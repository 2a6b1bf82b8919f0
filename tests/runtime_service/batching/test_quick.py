"""Which sizes of messages are quick, after which runs."""

from __future__ import annotations

from runtime_service.batching.quick import Quick


def noted(quick: Quick, seconds: float, times: int = 1, requests: int = 1) -> bool:
    for _ in range(times):
        quick.note("m", 100, seconds, requests)
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


def test_a_quick_model_becomes_quick_where_many_clients_keep_it_busy_with_batches() -> None:
    """The run of a batch takes longer than one request may, though one request does not: a lone run is tried, and counts."""
    quick = Quick()
    assert not noted(quick, 6e-4, 15, requests=16)
    assert noted(quick, 6e-4, 100, requests=16)
    assert noted(quick, 1e-4, 4)
    assert noted(quick, 6e-4, 1000, requests=16)


def test_a_batch_that_takes_no_longer_than_one_request_may_is_quick() -> None:
    assert noted(Quick(), 1e-4, 4, requests=16)


def test_a_batch_whose_share_is_slow_is_slow() -> None:
    quick = Quick()
    assert not noted(quick, 16e-3, 1000, requests=16)
    assert noted(quick, 1e-4, 4)
    assert not noted(quick, 32e-3, 4, requests=16)


def test_a_model_that_is_slow_alone_and_quick_in_a_batch_is_seldom_run_alone() -> None:
    """A lone run takes half a millisecond, sixteen of them together take one."""
    quick, lone = Quick(), 0
    for _ in range(100_000):
        if quick.is_quick("m", 100):
            quick.note("m", 100, 5e-4, 1)
            lone += 1
        else:
            quick.note("m", 100, 1e-3, 16)
    assert 0 < lone < 40


def test_a_trial_ends_with_one_slow_run_and_waits_where_one_was_long() -> None:
    quick = Quick()
    assert noted(quick, 6e-4, 16, requests=16)
    assert not noted(quick, 5e-4)
    assert not noted(quick, 0.05)
    assert not noted(quick, 6e-4, 100_000, requests=16)


def test_one_long_run_after_a_thousand_quick_ones_is_forgiven_and_another_is_not() -> None:
    quick = Quick()
    assert noted(quick, 1e-4, 2000)
    assert noted(quick, 0.05)
    assert not noted(quick, 0.05)
    assert not noted(quick, 1e-4, 50)
    assert noted(quick, 1e-4, 4)
