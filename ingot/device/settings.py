"""What the measuring server of a device is told when it starts; what would leave it open is refused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.emulator import EMULATORS, find_emulator
from shared_ir.service_kit.settings import is_loopback, require_address, require_token
from shared_ir.service_kit.tls import TlsFiles

DEFAULT_ADDRESS = "127.0.0.1:50070"
DEFAULT_CACHE_BYTES = 256 << 20


@dataclass(frozen=True)
class DeviceSettings:
    """Attributes:
    listen: ``host:port``; port 0 takes a free one.
    trust: a public key (PEM), or a folder of them: who may sign what runs here.
    token: that calls must carry; empty for none.
    tls: None: in the clear.
    is_plain: somebody said that others may reach it in the clear.
    emulates: architectures of foreign code that an emulator runs.
    core: on which trials run; None for any.
    cache_bytes: of contents that are kept.
    memory_bytes: that the trials of one order take together; 0: half of what the machine has.
    locks: whether trials must be kept from system calls.
    """

    trust: Path
    listen: str = DEFAULT_ADDRESS
    token: str = ""
    tls: TlsFiles | None = None
    is_plain: bool = False
    emulates: tuple[str, ...] = ()
    core: int | None = None
    cache_bytes: int = DEFAULT_CACHE_BYTES
    memory_bytes: int = 0
    locks: bool = True

    def __post_init__(self) -> None:
        """Raises IngotError INVALID_ARGUMENT, or NOT_FOUND for an emulator that is not installed."""
        require_address("--listen", self.listen)
        require_token("--token-file", self.token)
        if not is_loopback(self.listen):
            self._require_guards()
        for architecture in self.emulates:
            if find_emulator(architecture) is None:
                raise IngotError(
                    ErrorCode.NOT_FOUND,
                    f"there is no emulator of {architecture} on this machine",
                    field="--emulate",
                    expected=EMULATORS.get(architecture, f"one of {', '.join(EMULATORS)}"),
                    remedy="Install qemu's user mode (Debian: qemu-user-static).",
                )
        if self.core is not None and self.core not in os.sched_getaffinity(0):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "this process may not use that core",
                field="--core",
                expected=", ".join(map(str, sorted(os.sched_getaffinity(0)))),
                received=str(self.core),
            )

    def _require_guards(self) -> None:
        missing = "--token-file" if not self.token else "" if self.tls or self.is_plain else "--tls-certificate"
        if missing:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "other machines could reach the measuring server, and it would be open to them",
                field="--listen",
                expected=f"{missing} beside it, or an address of this machine alone such as {DEFAULT_ADDRESS}",
                received=self.listen[:100],
                remedy="Give it a token and a TLS certificate; --plain does without TLS, for a network that you trust.",
            )

    @property
    def memory(self) -> int:
        return self.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
