"""Certificates for tests."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def pair(
    folder: Path,
    name: str,
    password: bytes = b"",
    lasts: timedelta = timedelta(days=9),
    starts: timedelta = timedelta(days=-1),
) -> tuple[Path, Path]:
    """Files of a certificate for localhost that signed itself, by default a day ago, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.now() + starts
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + lasts)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    secret = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    encoding = serialization.Encoding.PEM
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(certificate.public_bytes(encoding))
    files[1].write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, secret))
    files[1].chmod(0o600)
    return files
