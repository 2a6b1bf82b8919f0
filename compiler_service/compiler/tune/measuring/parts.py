"""Several byte strings sent as one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def parts(body: bytes, sizes: Sequence[int]) -> list[bytes]:
    """``body`` cut in parts of ``sizes`` bytes."""
    ends = list(itertools.accumulate(sizes, initial=0))
    return [body[start:end] for start, end in itertools.pairwise(ends)]
