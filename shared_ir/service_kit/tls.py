"""TLS material as both servers want it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from shared_ir.errors import ErrorCode, IngotError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files; with ``client_ca`` clients must show a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Raises IngotError INVALID_ARGUMENT: a file cannot be read."""
        pair = (_read(self.key), _read(self.certificate))
        authority = _read(self.client_ca) if self.client_ca else None
        return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)

    def context(self) -> ssl.SSLContext:
        """Raises IngotError INVALID_ARGUMENT: a file cannot be read or does not hold what it should."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # SSLError is one
            raise _unusable(self.certificate, error) from error
        return context


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> IngotError:
    return IngotError(ErrorCode.INVALID_ARGUMENT, f"cannot use a TLS file: {error}", field=str(path))
