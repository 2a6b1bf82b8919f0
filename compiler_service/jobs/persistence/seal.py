"""What a job asks for is signed by who took the order, so that writing to Redis is not enough to have something compiled and signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared_ir.artifact.signature import Signature, SigningKey, Trust
from shared_ir.errors import ErrorCode, IngotError

ORDER, SEAL = "job", "seal"
"""Fields of a record in Redis: what never changes of the job, and its signature."""
_DOMAIN = b"ingot job, version 1\n"


@dataclass(frozen=True)
class Seal:
    """Signs with ``signer``, and takes what a key of ``trust`` has signed."""

    signer: SigningKey
    trust: Trust

    def put(self, fields: Mapping[str, str]) -> dict[str, str]:
        """The fields of a new record with the signature of their order."""
        signature = self.signer.sign(_DOMAIN + fields[ORDER].encode())
        return {**fields, SEAL: f"{signature.key_id} {signature.value}"}

    def check(self, fields: Mapping[str, str]) -> None:
        """Raises IngotError ARTIFACT_UNTRUSTED."""
        key, _, value = fields.get(SEAL, "").partition(" ")
        try:
            self.trust.verify(_DOMAIN + fields.get(ORDER, "").encode(), Signature(key, value))
        except IngotError as error:
            raise IngotError(
                ErrorCode.ARTIFACT_UNTRUSTED,
                "a job in Redis was not ordered from this service",
                received=f"signed by key {key[:64]!r}" if key else "not signed",
                remedy="Submit the job again. If it happens again, somebody else writes to Redis.",
            ) from error
