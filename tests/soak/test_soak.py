"""A short form of ``make soak``, and that it sees what it looks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.soak.__main__ import Report, soak
from tests.soak.callers import Array, Tally
from tests.soak.rig import STEADY, SWAPPED, WIDTH, rig

pytestmark = pytest.mark.services


@pytest.mark.slow
def test_good_requests_are_answered_whatever_goes_on_beside_them(tmp_path: Path) -> None:
    with rig(tmp_path) as made:
        report = soak(made, seconds=8.0, warm=8.0, seed=1)
    assert report.is_good(), "\n".join(report.lines())
    assert report.tally.answered > 500
    assert {"hung up", "loaded and unloaded", "odd bytes", "swapped", "wrong over HTTP", "wrong over gRPC"} <= set(
        report.done
    )


def test_answers_of_another_version_row_or_shape_are_wrong() -> None:
    x = np.arange(2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)

    def seen(model: str, version: str, y: Array) -> tuple[int, int]:
        tally = Tally()
        tally.ask("test", model, x, lambda name, given: (version, y))
        return len(tally.wrong), len(tally.failed)

    assert seen(SWAPPED, "2", x * 5) == (0, 0)
    assert seen(SWAPPED, "1", x * 5) == (1, 0)
    assert seen(STEADY, "1", x[::-1] * 2) == (1, 0)
    assert seen(STEADY, "1", x[:1] * 2) == (1, 0)
    assert seen(STEADY, "9", x * 2) == (1, 0)


def test_growth_and_faults_are_not_good() -> None:
    assert Report(before=100.0, after=104.9).is_good()
    assert not Report(before=100.0, after=105.1).is_good()
    assert not Report(before=100.0, after=100.0, faults=["one"]).is_good()
    assert not Report(before=100.0, after=100.0, tally=Tally(5, [], ["one"])).is_good()
