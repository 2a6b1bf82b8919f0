"""What a process inside the boundary is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

Grant = tuple[str, str]
"""A path, and what for: a key of :data:`compiler_service.boundary.landlock.RIGHTS`."""


@dataclass(frozen=True)
class Policy:
    """What one process may reach and use.

    Attributes:
        grants: files and folders.
        limits: as :func:`compiler_service.boundary.limits.limit` takes them.
        descriptors: open descriptors that it keeps, beside standard input, output and errors.
        required: parts of the boundary without which it does not start.
        stays: it outlives the thread that started it. Otherwise it is killed with that thread.
        locks: it may lock files, as zig does in its cache. It could keep others waiting who lock a file that it reads.
        closes_later: it enters all but the namespaces by itself, for each child of its own, before that reads anything.
        refusal: an open descriptor, which the program does not get: what is written there is that it was not started; -1 for none.
        kept_out: what no grant may lead to; the file view counts as missing where one of these can be opened.
    """

    grants: Sequence[Grant] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    descriptors: Sequence[int] = ()
    required: Sequence[str] = ()
    stays: bool = False
    locks: bool = False
    closes_later: bool = False
    kept_out: Sequence[str] = ()
    refusal: int = -1

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Policy:
        return cls(**json.loads(data))
