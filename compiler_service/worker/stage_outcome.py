"""What becomes of a stage that a worker has taken."""

from __future__ import annotations

import enum


class StageOutcome(enum.Enum):
    """What the task does next."""

    CONTINUE = "continue"
    """The stage's output exists: on to the next stage."""
    STOP = "stop"
    """Nothing more to do here: failed, cancelled, finished before, or in other hands."""
    AGAIN = "again"
    """This worker is shutting down: another one must do the stage."""
