"""What one peer may have of places that all peers share."""

from __future__ import annotations

_LEAST_SHARED = 8
"""Fewer places are not divided among peers."""


def is_for_others(taken: int, own: int, most: int) -> bool:
    """Whether the next place is not for a peer that has ``own`` of the ``taken`` ones, of ``most`` places: who has half of all gets none
    of the last quarter."""
    return most >= _LEAST_SHARED and 4 * taken >= 3 * most and 2 * own >= most
