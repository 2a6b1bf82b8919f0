"""Entering the boundary, part by part. Standard library only; a process with one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from compiler_service.boundary.landlock import FIRST_WITH_SCOPES, restrict_files, version
from compiler_service.boundary.limits import limit
from compiler_service.boundary.namespaces import (
    be_first,
    bound_processes,
    enter_namespaces,
    stay_outside,
    why_not_permitted,
)
from compiler_service.boundary.parts import BoundaryPart
from compiler_service.boundary.policy import Policy
from compiler_service.boundary.privileges import drop_privileges
from compiler_service.boundary.seccomp import refuse_calls

Missing = dict[BoundaryPart, str]
_UNSEEN_PROCESSES = 4096
"""Room for what the same user runs elsewhere, where the kernel counts all of it together."""


def enter_outer(policy: Policy) -> Missing:
    """Namespaces: returns in a new process where they are permitted. What is missing, with the reason."""
    missing: Missing = {}
    reason = why_not_permitted()
    if reason:
        missing |= {
            BoundaryPart.NETWORK: f"sockets are refused by the filter alone: {reason}",
            BoundaryPart.PROCESSES: reason,
        }
        if version() < FIRST_WITH_SCOPES:
            missing[BoundaryPart.SIGNALS] = f"{reason}, and Landlock has no scopes before Linux 6.12"
    else:
        enter_namespaces()
        stay_outside(follows=not policy.stays)
    _bound_processes(policy.limits, missing)
    if not reason:
        be_first()
    return missing


def enter_inner(policy: Policy, missing: Missing) -> None:
    """Everything else, the last line first drawn where it hinders the next ones least."""
    _attempt(BoundaryPart.PRIVILEGES, missing, drop_privileges)
    _attempt(BoundaryPart.LIMITS, missing, lambda: limit(_limits(policy.limits, missing)))
    _attempt(BoundaryPart.FILES, missing, lambda: _restrict_files(policy))
    _attempt(BoundaryPart.SYSTEM_CALLS, missing, lambda: refuse_calls(locks=policy.locks))


def _attempt(part: BoundaryPart, missing: Missing, act: Callable[[], None]) -> None:
    try:
        act()
    except (OSError, ValueError, KeyError) as error:
        missing[part] = str(error)


def _restrict_files(policy: Policy) -> None:
    if not version():
        raise OSError("the kernel has no Landlock, or it is not enabled (lsm=landlock,... on its command line)")
    restrict_files(policy.grants)
    for place in policy.kept_out:
        if _opens(place):
            raise OSError(f"{place} can be read all the same: a place that the compiler needs contains it")


def _opens(place: str) -> bool:
    try:
        os.close(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _bound_processes(limits: Mapping[str, int], missing: Missing) -> None:
    """RLIMIT_NPROC does not bind user 0: there it is the namespace that is bounded."""
    if os.getuid() != 0 or "processes" not in limits:
        return
    if BoundaryPart.PROCESSES in missing:
        missing[BoundaryPart.LIMITS] = "nothing bounds the number of processes of user 0 without a process namespace"
        return
    try:
        bound_processes(limits["processes"])
    except OSError as error:
        missing[BoundaryPart.LIMITS] = f"nothing bounds the number of processes of user 0: {error}"


def _limits(limits: Mapping[str, int], missing: Missing) -> Mapping[str, int]:
    if "processes" not in limits or BoundaryPart.PROCESSES not in missing:
        return limits
    return {**limits, "processes": limits["processes"] + _UNSEEN_PROCESSES}
