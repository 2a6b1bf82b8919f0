"""The home folder of an installation: keys, artifact store, logs, and the addresses of what runs there."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ingot.server_address import server_address
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.files import write_atomically

ADDRESS_FILE = "up.json"
RECORDS_FILE = "records.jsonl"
"""The tuning records of an installation, of all models and targets, in its home folder."""
DEFAULT_COMPILER = "127.0.0.1:8500"
DEFAULT_GRPC = "127.0.0.1:8001"
DEFAULT_HTTP = "127.0.0.1:8000"


def home_directory(home: str | Path | None = None) -> Path:
    """``home`` if given, else ``INGOT_HOME``, else ``~/.ingot``."""
    return Path(home or os.environ.get("INGOT_HOME") or Path.home() / ".ingot").absolute()


@dataclass(frozen=True)
class Addresses:
    """``host:port`` of every server of an installation; ``pid`` of the process that keeps it up, 0 when none is known.

    Attributes:
        compiler: gRPC of the compiler service.
        compiler_metrics: its ``/metrics``.
        grpc, http: Open Inference Protocol of the runtime service.
        metrics: ``/metrics`` of the runtime service.
    """

    compiler: str = DEFAULT_COMPILER
    compiler_metrics: str = ""
    grpc: str = DEFAULT_GRPC
    http: str = DEFAULT_HTTP
    metrics: str = ""
    pid: int = 0

    @classmethod
    def find(cls, home: Path) -> Self:
        """Those of the environment, else those that ``ingot up`` wrote into ``home``, else the usual ones.

        ``INGOT_COMPILER_ADDRESS`` is the compiler service, ``INGOT_RUNTIME_ADDRESS`` the gRPC port of the runtime
        service, ``INGOT_RUNTIME_HTTP_ADDRESS`` its HTTP port.

        Raises:
            IngotError: INVALID_ARGUMENT, the address file is damaged, or a variable holds no address.
        """
        given = {
            name: server_address(os.environ[variable], variable)
            for name, variable in (
                ("compiler", "INGOT_COMPILER_ADDRESS"),
                ("grpc", "INGOT_RUNTIME_ADDRESS"),
                ("http", "INGOT_RUNTIME_HTTP_ADDRESS"),
            )
            if os.environ.get(variable)
        }
        return cls(**_read(home / ADDRESS_FILE) | given)

    def write(self, home: Path) -> Path:
        """The file that :meth:`find` reads."""
        path = home / ADDRESS_FILE
        write_atomically(path, json.dumps(asdict(self), indent=2).encode() + b"\n")
        return path


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
        return {name: data[name] for name in Addresses.__dataclass_fields__ if name in data}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            f"the file with the addresses of the services cannot be read: {error}",
            field=str(path),
            remedy="Delete it and start `ingot up` again.",
        ) from error
