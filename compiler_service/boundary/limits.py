"""Resource limits of a process and of its children."""

from __future__ import annotations

import resource
from collections.abc import Mapping

KINDS = {
    "memory": resource.RLIMIT_AS,
    "processor_seconds": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}


def limit(limits: Mapping[str, int]) -> None:
    """Set the limits named as in :data:`KINDS`; never a core file, whose bytes would be the memory of the process.

    Raises:
        OSError, ValueError: the kernel refuses.
    """
    for kind, value in ((resource.RLIMIT_CORE, 0), *((KINDS[name], value) for name, value in limits.items())):
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))
