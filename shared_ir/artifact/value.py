"""The artifact: a compiled model as a value, and the key that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from shared_ir.digest import canonical_json, sha256_hex
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target
from shared_ir.plan.json_form import plan_digest
from shared_ir.plan.program import Plan
from shared_ir.versions import ABI_VERSION, SUPPORTED_ABI_VERSIONS

__all__ = ["ABI_VERSION", "SUPPORTED_ABI_VERSIONS", "CompiledArtifact", "Manifest", "artifact_key"]


@dataclass(frozen=True)
class Manifest:
    """What an artifact is and what may run it.

    Attributes:
        name: name of the model as it was compiled.
        key: :func:`artifact_key`.
        abi_version: version of the C ABI of ``model.so``.
        compiler_version: what compiled it.
        triple, cpu, features: the target, in LLVM's words.
        min_glibc: oldest glibc that can load ``model.so``, ``2.17``; empty for a static or non-glibc target.
        model_sha256: digest of the source model, hexadecimal.
        options: every option that was given or defaulted, JSON values.
        others: fields that a later version wrote; they are kept.
    """

    name: str
    key: str
    abi_version: int
    compiler_version: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    min_glibc: str = ""
    model_sha256: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; :meth:`from_dict` is its inverse."""
        own = {name: value for name, value in asdict(self).items() if name != "others"}
        return dict(self.others) | own | {"features": list(self.features), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises IngotError ARTIFACT_CORRUPT for missing or mistyped fields."""
        known = cls.__dataclass_fields__.keys() - {"others"}
        fields = {name: value for name, value in data.items() if name in known}
        if fields.keys() != known or not _well_typed(fields):
            raise IngotError(
                ErrorCode.ARTIFACT_CORRUPT,
                "the artifact's manifest does not have the fields of a manifest",
                expected=", ".join(sorted(known)),
                received=", ".join(sorted(map(str, data)))[:400],
            )
        others = {str(name): value for name, value in data.items() if name not in known}
        return cls(**fields | {"features": tuple(fields["features"])}, others=others)


def _well_typed(fields: Mapping[str, Any]) -> bool:
    features, others = fields["features"], ("abi_version", "features", "options")
    return (
        type(fields["abi_version"]) is int
        and isinstance(features, list | tuple)
        and all(isinstance(feature, str) for feature in features)
        and isinstance(fields["options"], Mapping)
        and all(isinstance(value, str) for name, value in fields.items() if name not in others)
    )


@dataclass(frozen=True)
class CompiledArtifact:
    """A compiled model.

    Attributes:
        manifest: what it is and what may run it.
        plan: its inputs and outputs, kernels and steps.
        library: the bytes of ``model.so``.
        weights: prepacked weights, or the file that holds them; 64-byte aligned inside, never parsed.
        report: stages and times, schedules, verification; JSON values.
        attachments: further files by name, such as a static executable.
    """

    manifest: Manifest
    plan: Plan
    library: bytes
    weights: bytes | memoryview | Path
    report: Mapping[str, Any] = field(default_factory=dict)
    attachments: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def plan_digest(self) -> str:
        """Hexadecimal digest of the plan."""
        return plan_digest(self.plan)


def artifact_key(
    model_sha256: str,
    target: Target,
    options: Mapping[str, Any],
    tuning_records_digest: str,
    compiler_version: str,
) -> str:
    """Hexadecimal sha256 of everything that changes the code: same key, same bytes.

    ``options`` must hold every option that changes code, defaults included, as JSON values.
    """
    return sha256_hex(
        canonical_json(
            {
                "abi": ABI_VERSION,
                "model": model_sha256,
                "target": asdict(target),
                "options": dict(options),
                "tuning_records": tuning_records_digest,
                "compiler": compiler_version,
            }
        )
    )
