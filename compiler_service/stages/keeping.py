"""What a stage has measured is kept while it works, so that nothing of it is lost however the stage ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shared_ir.errors import IngotError
from shared_ir.storage.appended import LinesTail

_MOST_AT_ONCE_BYTES = 8 << 20
_MOST_BYTES = 256 << 20
"""Of what one stage may have kept: it has read a foreign model, and may write without end."""
_TRIAL = b'"kind":"trial"'
"""In the line of a trial, which is canonical JSON; what else is in a journal says who is measuring, and nobody is in the end."""

logger = logging.getLogger(__name__)

Keep = Callable[[bytes], None]


class KeptTrials:
    """Hands the trials that a stage adds to its ``journal`` to ``keep``, once in ``seconds``. What it does not take it is given again,
    together with what has come meanwhile."""

    def __init__(self, journal: Path, keep: Keep, seconds: float) -> None:
        self._tail = LinesTail(journal)
        self._keep = keep
        self._seconds = seconds
        self._last = time.monotonic()
        self._waiting = b""
        self._left = _MOST_BYTES

    def when_due(self) -> None:
        """Keep what there is, if it is time; whoever cannot keep it now is asked again."""
        if time.monotonic() - self._last >= self._seconds:
            try:
                self.now()
            except IngotError as error:
                logger.warning("what was measured cannot be kept yet: %s", error)

    def now(self) -> None:
        """Keep what there is. Raises what ``keep`` does."""
        self._last = time.monotonic()
        while lines := self._tail.read_new(min(self._left, _MOST_AT_ONCE_BYTES)):
            self._left -= len(lines)
            self._waiting += b"".join(line for line in lines.splitlines(keepends=True) if _TRIAL in line)
        if self._waiting:
            self._keep(self._waiting)
            self._waiting = b""


@contextmanager
def keeping(journal: Path, keep: Keep, seconds: float) -> Iterator[KeptTrials]:
    """Around a stage that measures: in the end, whatever that is, all that it has measured is kept."""
    kept = KeptTrials(journal, keep, seconds)
    try:
        yield kept
    except BaseException:
        try:
            kept.now()
        except IngotError as error:
            logger.warning("what was measured is lost, since it cannot be kept: %s", error)
        raise
    kept.now()
