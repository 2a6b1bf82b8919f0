"""From an operator and a seed, or a trail of choices, to a case."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from tests.oracle.builder import Builder
from tests.oracle.case import Case
from tests.oracle.draw import Draw
from tests.oracle.families import FAMILIES


def drawn_case(family: str, seed: int) -> tuple[Case, list[int]]:
    """The case of a seed, and the choices that made it."""
    return _made(family, Draw((zlib.crc32(family.encode()), seed)))


def replayed_case(family: str, trail: Sequence[int]) -> tuple[Case, list[int]]:
    """The case that these choices make; those that were not needed are cut off."""
    return _made(family, Draw(trail=trail))


def _made(family: str, draw: Draw) -> tuple[Case, list[int]]:
    builder = Builder(draw)
    FAMILIES[family](builder, family)
    return builder.case(family), draw.trail
