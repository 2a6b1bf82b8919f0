"""What passes between a process and its nursery."""

from __future__ import annotations

import struct

LONGEST_ORDER = 4096
"""Bytes of the path in an order."""
STATUS = struct.Struct("i")
"""What a leash hears when the child has ended: its exit status, negative for a signal."""
READY = b"+"
"""What a nursery says first."""
