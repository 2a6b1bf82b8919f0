"""TLS material as servers and clients want it; what is incomplete or does not fit is refused before anything listens."""

from __future__ import annotations

import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509

from shared_ir.errors import ErrorCode, IngotError

CONNECTION_BYTES = 50_000
"""What a connection takes, from its handshake on."""
_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
"""Between two looks at the files of a server, where there are connections."""
_Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files; with ``client_ca`` clients must show a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def doubts(self) -> list[str]:
        """What an operator should know, and what is no reason not to serve: clocks are wrong at times, secrets mounted as they are."""
        found = []
        with contextlib.suppress(OSError, ValueError):  # what cannot be read is refused elsewhere
            if self.key.stat().st_mode & 0o007:
                found.append(
                    f"the TLS key {self.key} may be read or written by everyone on this machine: chmod o= {self.key}"
                )
        with contextlib.suppress(OSError, ValueError):
            for own in x509.load_pem_x509_certificates(self.certificate.read_bytes())[:1]:
                now = datetime.now(UTC)
                if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
                    valid = f"{own.not_valid_before_utc:%Y-%m-%d %H:%M} to {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
                    found.append(f"the TLS certificate {self.certificate} is valid from {valid}: clients refuse it now")
        return found

    def context(self) -> ssl.SSLContext:
        """Raises IngotError INVALID_ARGUMENT: a file cannot be read or does not hold what it should."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_pair(context, self.certificate, self.key)
        if self.client_ca:
            context.load_verify_locations(cadata=authorities(self.client_ca).decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class RenewedContext:
    """What TLS the next connection to a server gets. Files that were replaced, as authorities renew certificates every few weeks, count
    within a second; those that cannot be used do not, which the log says, and the last that could go on. For one thread."""

    def __init__(
        self, files: TlsFiles, protocols: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``protocols`` are those of ALPN, if any. Raises IngotError as :meth:`TlsFiles.context`."""
        self._files = files
        self._protocols = list(protocols)
        self._clock = clock
        self._stamps = self._now()
        self._context = self._made()
        self._looked = clock()

    def __call__(self) -> ssl.SSLContext:
        now = self._clock()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            if (stamps := self._now()) != self._stamps:
                self._stamps = stamps
                self._renew()
        return self._context

    def _renew(self) -> None:
        try:
            self._context = self._made()
        except IngotError as error:
            _LOG.error("files of TLS were replaced and cannot be used, those before go on: %s", error)
            return
        _LOG.info("files of TLS were replaced: new connections have the certificate in %s", self._files.certificate)
        for text in self._files.doubts():
            _LOG.warning("%s", text)

    def _made(self) -> ssl.SSLContext:
        context = self._files.context()
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        return context

    def _now(self) -> list[_Stamp]:
        own = (self._files.certificate, self._files.key, self._files.client_ca)
        return [_stamp(path) for path in own if path is not None]


def tls_files(certificate: str, key: str, client_ca: str) -> TlsFiles | None:
    """The files that settings name; None where they name none.

    Raises:
        IngotError: INVALID_ARGUMENT, they name some of them only.
    """
    if not (certificate or key or client_ca):
        return None
    if not (certificate and key):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "TLS is configured by half",
            field="tls",
            expected="a certificate and its key",
            received="one of them, or authorities of clients alone",
        )
    files = TlsFiles(Path(certificate), Path(key), Path(client_ca) if client_ca else None)
    for text in files.doubts():
        _LOG.warning("%s", text)
    return files


@dataclass(frozen=True, slots=True)
class ClientTls:
    """PEM files of a client: the authorities that it trusts, by default those of the system, and what it shows a server that asks."""

    ca_certificate: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def grpc_credentials(self) -> grpc.ChannelCredentials:
        """Raises IngotError INVALID_ARGUMENT: a file cannot be read or does not hold what it should."""
        self.context()  # gRPC itself takes any bytes, and then fails every handshake
        roots, key, chain = (
            _read(path) if path else None for path in (self.ca_certificate, self.key, self.certificate)
        )
        return grpc.ssl_channel_credentials(roots, key, chain)

    def context(self) -> ssl.SSLContext:
        """Raises IngotError INVALID_ARGUMENT: a file cannot be read or does not hold what it should."""
        context = ssl.create_default_context()
        if self.ca_certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=authorities(self.ca_certificate).decode())
        if self.certificate is not None and self.key is not None:
            _load_pair(context, self.certificate, self.key)
        return context


def client_tls(
    ca_certificate: str | Path | None, certificate: str | Path | None, key: str | Path | None
) -> ClientTls | None:
    """Of the files that a client was given; None where there are none, and it speaks in the clear.

    Raises:
        IngotError: INVALID_ARGUMENT, a certificate without its key, or a key alone.
    """
    if bool(certificate) != bool(key):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "a client certificate is given by half",
            field="client_certificate" if certificate else "client_key",
            expected="a certificate and its key",
            received="one of them",
        )
    paths = tuple(Path(path) if path else None for path in (ca_certificate, certificate, key))
    return ClientTls(*paths) if any(paths) else None


def authorities(path: Path) -> bytes:
    """The certificates in a PEM file of authorities.

    Raises:
        IngotError: INVALID_ARGUMENT, the file cannot be read or holds no certificate.
    """
    data = _read(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii"))
    except (OSError, ValueError) as error:
        raise _unusable(path, error, "certificates of authorities, as PEM") from error
    return data


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _read(key)
    _read(certificate)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        expected = "a certificate and, beside it, its own key without a password"
        raise _unusable(certificate, error, expected) from error


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _no_password() -> str:
    """Asked for where a key is encrypted; without it OpenSSL would ask at the terminal."""
    raise ValueError("the key has a password")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error, "a file that the service may read") from error


def _unusable(path: Path, error: Exception, expected: str) -> IngotError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        "a TLS file cannot be used",
        field=str(path),
        expected=expected,
        received=reason,
        remedy="Name complete TLS files, or none at all.",
    )
