"""Which version answers a request that names none, where several share such requests by weight.

Each share draws a number from the key of the request and its own name, and the smallest for its weight wins (weighted rendezvous, an
exponential race): of many keys a share gets the part that its weight is of all weights, the same key goes to the same share on every
replica and after every restart, and where the weight of one share changes, keys go to or from that share alone.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

MOST_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class Share:
    """The ``weight``, of those of all shares, of the requests go to ``version``. ``term`` names the share: a label that moves keeps its
    keys."""

    term: str
    version: int
    weight: int


def chosen(model: str, shares: Sequence[Share], key: str) -> int:
    """The version that answers. Without a key each request is drawn by itself.

    Args:
        shares: not empty, their weights above 0.
    """
    if not key:
        return random.choices(shares, [share.weight for share in shares])[0].version
    return min(shares, key=lambda share: _arrival(model, share.term, key) / share.weight).version


def _arrival(model: str, term: str, key: str) -> float:
    """Of an exponential distribution: the same for the same texts, everywhere.

    NOTE: the model is in it, so that it is not always the same callers who get what is new.
    """
    text = "\0".join((model, term, key)).encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 11
    return -math.log((drawn + 0.5) / (1 << 53))
