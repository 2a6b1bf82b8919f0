"""Which process holds which private key, and whose signatures it takes for what (docs/design/access.md)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from compiler_service.settings import CompilerSettings, variable
from shared_ir.artifact.signature import OwnKey, SigningKey, Trust, TrustEither, TrustFolder, fingerprint, trust_own
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.starting import at_start

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessKeys:
    """Of one process.

    Attributes:
        signer: signs artifacts, versions and labels; None in an API.
        sealer: signs what jobs ask for.
        trust: whose artifacts are taken.
        order_trust: whose orders are.
    """

    signer: OwnKey | None
    sealer: OwnKey
    trust: Trust
    order_trust: Trust


def worker_keys(settings: CompilerSettings) -> ProcessKeys:
    """The installation's signing key, made at first use and trusted here; orders of the keys in ``orders``, and of signing keys, which
    sealed those of the version before.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, the key was revoked here.
    """
    signer = SigningKey.load_or_create(settings.signing_key_file)
    trust_own(settings.trust_directory, signer)
    trust = TrustFolder(settings.trust_directory)
    own = OwnKey.of(signer, trust)
    return ProcessKeys(own, own, trust, TrustEither(TrustFolder(settings.orders_directory), trust))


@at_start
def api_keys(settings: CompilerSettings) -> ProcessKeys:
    """A key for orders alone, made at first use.

    Raises:
        IngotError: INVALID_ARGUMENT, its public half is not where workers look for it, and cannot be put there; ARTIFACT_UNTRUSTED, it
            was taken away from there.
    """
    if settings.signing_key:
        _LOG.warning(
            "this process holds the signing key, which only workers need: unset %s for it, and give it %s",
            variable("signing_key"),
            variable("order_key"),
        )
        return worker_keys(settings)
    sealer = SigningKey.load_or_create(settings.order_key_file)
    try:
        trust_own(settings.orders_directory, sealer)
    except OSError as error:
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "no worker would take the orders of this service",
            field=str(settings.orders_directory),
            expected=f"{sealer.key_id}.pub, the public half of {variable('order_key')}",
            received=error.strerror or type(error).__name__,
            remedy="Put it there for the API and its workers, or let the API write the folder.",
        ) from error
    _LOG.info("order key %s, %s", sealer.key_id, fingerprint(sealer.public))
    trust = TrustFolder(settings.trust_directory)
    order_trust = TrustEither(TrustFolder(settings.orders_directory), trust)
    return ProcessKeys(None, OwnKey.of(sealer, order_trust), trust, order_trust)
