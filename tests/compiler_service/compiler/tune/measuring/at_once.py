"""What a tuner of several threads asks of a measurer, at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from compiler_service.compiler.tune.measuring.trial import Measurer, Outcome, Trial


def run_at_once(
    measurer: Measurer, batches: Sequence[Sequence[Trial]], seconds: float
) -> tuple[tuple[Outcome, ...], ...]:
    """Each batch as ``measurer.run`` does it, from as many threads as it has devices."""
    with ThreadPoolExecutor(measurer.size) as pool:
        waiting = [pool.submit(measurer.run, batch, seconds) for batch in batches]
        try:
            return tuple(future.result() for future in waiting)
        finally:
            for future in waiting:
                future.cancel()
