"""Ed25519 signatures (RFC 8032): who may make code that we load."""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared_ir.digest import sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.storage.faults import file_error
from shared_ir.storage.files import write_atomically

_LOG = logging.getLogger(__name__)
SIGNING_KEY_FILE = "signing.pem"
TRUST_DIRECTORY = "trust"


def _raw(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def public_pem(key: Ed25519PublicKey) -> bytes:
    """SubjectPublicKeyInfo as PEM: the content of a file in a trust directory."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def fingerprint(key: Ed25519PublicKey) -> str:
    """``sha256:`` and the hexadecimal sha256 of the raw public key: what people compare before they trust it."""
    return f"sha256:{sha256_hex(_raw(key))}"


def key_id(key: Ed25519PublicKey) -> str:
    """First 16 hexadecimal digits of the sha256 of the raw public key."""
    return sha256_hex(_raw(key))[:16]


@dataclass(frozen=True)
class Signature:
    """A detached signature and the id of the key that made it."""

    key_id: str
    value: str  # base64


@dataclass(frozen=True)
class SigningKey:
    """A private key. Its file is PEM (PKCS 8), readable by its owner alone."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Raises IngotError: NOT_FOUND; INVALID_ARGUMENT when it is no ed25519 key or others may read it."""
        try:
            mode = path.stat().st_mode
            data = path.read_bytes()
        except OSError as error:
            raise IngotError(
                ErrorCode.NOT_FOUND, f"cannot read the private key: {error.strerror}", field=str(path)
            ) from error
        if mode & 0o077:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "the private key may be read by others",
                field=str(path),
                expected="mode 0600",
                received=f"mode {mode & 0o777:04o}",
                remedy=f"Run: chmod 600 {path}",
            )
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError) as error:
            raise _not_a_key(str(path), "private") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _not_a_key(str(path), "private")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """The key at ``path``, made first if there is none. Safe against two processes doing so at once."""
        if not path.exists():
            cls.generate().save(path)
        return cls.load(path)

    def save(self, path: Path) -> None:
        """Write with mode 0600, unless the file exists already."""
        data = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
        finally:
            temporary.unlink(missing_ok=True)

    @property
    def public(self) -> Ed25519PublicKey:
        return self.private.public_key()

    @property
    def key_id(self) -> str:
        return key_id(self.public)

    def sign(self, payload: bytes) -> Signature:
        return Signature(self.key_id, base64.b64encode(self.private.sign(payload)).decode())


@dataclass(frozen=True)
class OwnKey(SigningKey):
    """A key of this process, as long as ``trust`` has its public half: what it signs after that nobody would take."""

    trust: Trust

    @classmethod
    def of(cls, key: SigningKey, trust: Trust) -> Self:
        return cls(key.private, trust)

    @property
    def is_revoked(self) -> bool:
        return self.key_id not in self.trust.keys

    def sign(self, payload: bytes) -> Signature:
        """Raises IngotError UNAVAILABLE, it was revoked while this process ran."""
        if self.is_revoked:
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                f"key {self.key_id} of this process was revoked while it ran: nobody would take what it signs",
                remedy="Tell the operator of the service, who gives the process another key and starts it again, or puts the public "
                "half of this one back.",
            )
        return super().sign(payload)


class Trust(Protocol):
    """Whose artifacts may be loaded."""

    @property
    def keys(self) -> Mapping[str, Ed25519PublicKey]:
        """The trusted public keys by their id."""

    def verify(self, payload: bytes, signature: Signature) -> None:
        """Raises IngotError ARTIFACT_UNTRUSTED unless a trusted key signed exactly ``payload``."""


@dataclass(frozen=True)
class TrustStore:
    """Public keys that are trusted."""

    keys: Mapping[str, Ed25519PublicKey]

    @classmethod
    def of(cls, keys: Iterable[Ed25519PublicKey]) -> Self:
        return cls({key_id(key): key for key in keys})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Every ``*.pub`` (PEM) in a directory, but for those that hold no key; a missing directory trusts nobody."""
        return cls.of(key for _, key in trusted_files(directory))

    def verify(self, payload: bytes, signature: Signature) -> None:
        """Raises IngotError ARTIFACT_UNTRUSTED unless a trusted key signed exactly ``payload``."""
        key = self.keys.get(signature.key_id)
        if key is None:
            raise IngotError(
                ErrorCode.ARTIFACT_UNTRUSTED,
                "the artifact is signed by a key that is not trusted here",
                expected=f"one of the keys {', '.join(sorted(self.keys)) or '(none)'}",
                received=f"key {signature.key_id[:64]!r}",
                remedy="Add the signer's public key to the trust directory if you trust it to run native code here; "
                "else compile the model again.",
            )
        try:
            key.verify(base64.b64decode(signature.value, validate=True), payload)
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise IngotError(
                ErrorCode.ARTIFACT_UNTRUSTED,
                f"the signature by key {signature.key_id} does not belong to this artifact",
                remedy="The artifact was changed after it was signed: fetch it again from its source.",
            ) from error


@dataclass(frozen=True)
class TrustFolder:
    """The keys in a folder as they are whenever something is to be verified: one that is added counts from then on, and one
    that is taken away no longer."""

    directory: Path
    _read: dict[str, tuple[tuple[object, ...], Mapping[str, Ed25519PublicKey]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def keys(self) -> Mapping[str, Ed25519PublicKey]:
        """NOTE: the files are looked at each time, and read where one has changed.

        Raises:
            IngotError: UNAVAILABLE, they cannot be read: nothing is revoked by that, and nothing new is trusted.
        """
        state = _state(self.directory)
        kept = self._read.get("keys")
        if kept is None or kept[0] != state:
            kept = self._read["keys"] = state, TrustStore.load(self.directory).keys
        return kept[1]

    def verify(self, payload: bytes, signature: Signature) -> None:
        TrustStore(self.keys).verify(payload, signature)


@dataclass(frozen=True)
class Witness:
    """The same trust, which notes the ids of the keys whose signatures it has verified."""

    trust: Trust
    used: set[str] = field(default_factory=set)

    @property
    def keys(self) -> Mapping[str, Ed25519PublicKey]:
        return self.trust.keys

    def verify(self, payload: bytes, signature: Signature) -> None:
        self.trust.verify(payload, signature)
        self.used.add(signature.key_id)


@dataclass(frozen=True)
class TrustEither:
    """Whom one of two trusts."""

    first: Trust
    second: Trust

    @property
    def keys(self) -> Mapping[str, Ed25519PublicKey]:
        return {**self.first.keys, **self.second.keys}

    def verify(self, payload: bytes, signature: Signature) -> None:
        TrustStore(self.keys).verify(payload, signature)


def add_trusted(directory: Path, key: Ed25519PublicKey) -> Path:
    """Write ``key`` into a trust directory as ``<key id>.pub``; return the file."""
    path = directory / f"{key_id(key)}.pub"
    write_atomically(path, public_pem(key))
    return path


def trusted_files(directory: Path) -> Iterator[tuple[Path, Ed25519PublicKey]]:
    """The files of a trust directory, whatever they are called, with their keys. One that holds none harms itself alone.

    Raises:
        IngotError: UNAVAILABLE, one cannot be read at the moment (no descriptor is left, the disk fails): whom it names nobody knows.
    """
    for path in sorted(directory.glob("*.pub")):
        try:
            yield path, read_public(path.read_bytes(), str(path))
        except (IngotError, OSError) as error:
            if isinstance(error, OSError) and file_error(error).code is ErrorCode.UNAVAILABLE:
                raise _out_of_reach(path, error) from error
            _LOG.warning("%s is passed over, since it holds no key that could be trusted: %s", path, error)


def remove_trusted(directory: Path, identifier: str) -> bool:
    """Trust the key of this id no longer, in whatever files it is; whether there was one. Nobody puts it back by himself."""
    found = [path for path, key in trusted_files(directory) if key_id(key) == identifier]
    if found:
        _note(directory, identifier)
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def trust_own(directory: Path, key: SigningKey) -> None:
    """Have a key of this installation trusted in ``directory``. That is done once, and noted there: from then on one that is gone was
    revoked.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, it was.
    """
    if key.key_id not in TrustStore.load(directory).keys:
        if _noted(directory, key.key_id).exists():
            raise IngotError(
                ErrorCode.ARTIFACT_UNTRUSTED,
                f"key {key.key_id} of this installation was revoked: nobody would take what it signs",
                field=str(directory),
                expected=f"a file with the public half of key {key.key_id}",
                remedy="Take its private key away, and a new one is made; or put the public one back.",
            )
        add_trusted(directory, key.public)
    _note(directory, key.key_id)


def _note(directory: Path, identifier: str) -> None:
    note = _noted(directory, identifier)
    if not note.exists():
        with contextlib.suppress(OSError):  # who may not write the folder does not put keys back either
            write_atomically(note, b"")


def _noted(directory: Path, identifier: str) -> Path:
    return directory / f".{identifier}.known"


def read_public(data: bytes, where: str) -> Ed25519PublicKey:
    """The key in a PEM file. Raises IngotError INVALID_ARGUMENT."""
    try:
        key = serialization.load_pem_public_key(data)
    except ValueError as error:
        raise _not_a_key(where, "public") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _not_a_key(where, "public")
    return key


def local_keys(home: Path) -> tuple[SigningKey, TrustStore]:
    """The key pair of one installation, made at first use: ``home/signing.pem``, trusted in ``home/trust``. Raises as :func:`trust_own`."""
    key = SigningKey.load_or_create(home / SIGNING_KEY_FILE)
    directory = home / TRUST_DIRECTORY
    trust_own(directory, key)
    return key, TrustStore.load(directory)


def _state(directory: Path) -> tuple[object, ...]:
    """Of the public keys in a folder: changes whenever one does. Raises IngotError UNAVAILABLE: nobody can look."""
    try:
        with os.scandir(directory) as entries:
            files = sorted((entry for entry in entries if entry.name.endswith(".pub")), key=lambda entry: entry.name)
            return tuple(_state_of(entry) for entry in files)
    except FileNotFoundError:  # there is no folder
        return ("changing", time.monotonic_ns())
    except OSError as error:
        raise _out_of_reach(directory, error) from error


def _state_of(entry: os.DirEntry[str]) -> tuple[object, ...]:
    try:
        own = entry.stat()
    except FileNotFoundError:  # taken away at this moment, or a link to nothing
        return (entry.name,)
    return (entry.name, own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns)


def _out_of_reach(path: Path, error: OSError) -> IngotError:
    return IngotError(
        ErrorCode.UNAVAILABLE,
        "the keys that are trusted here cannot be read",
        field=str(path),
        expected="a folder of public keys (*.pub) that the process may read",
        received=error.strerror or type(error).__name__,
        remedy="Try again in a moment; if that does not help, the operator has to look at the folder.",
    )


def _not_a_key(where: str, kind: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_ARGUMENT,
        f"not an ed25519 {kind} key",
        field=where,
        expected=f"a PEM file with an ed25519 {kind} key",
    )
