"""Names of jobs and their targets in Redis, and what its scripts ask of them."""

from __future__ import annotations

FINISHED = "state == 'SUCCEEDED' or state == 'FAILED' or state == 'CANCELLED'"
"""A condition of a script, over its variable ``state``."""


def member(job: str, target: int) -> str:
    return f"{job}:{target}"


def split_member(text: str) -> tuple[str, int]:
    job, _, target = text.rpartition(":")
    return job, int(target)


def job_key(job: str) -> str:
    return f"ingot:job:{job}"


def done_key(job: str) -> str:
    return f"ingot:done:{job}"
