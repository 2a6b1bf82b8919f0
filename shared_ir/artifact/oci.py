"""The documents of an OCI image layout (image-spec 1.1) that hold a model version.

A version is an image index; each of its entries is the image manifest of one target, whose layers are ``plan.json``,
``model.so``, ``weights.bin``, ``report.json`` and attachments. Both documents carry an ed25519 signature as an
annotation, over the canonical JSON of the document without its signature annotations: generic tools keep it when they
copy, for one platform or for all. Descriptors in a signed document cover every byte below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from shared_ir.artifact.signature import SigningKey, Trust
from shared_ir.artifact.signed import corrupt, is_string_map, parse_document, sign_document, verify_document
from shared_ir.artifact.value import Manifest
from shared_ir.digest import canonical_json, digest_hex, digest_of
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.versions import SUPPORTED_ABI_VERSIONS

LAYOUT_FILE = "oci-layout"
INDEX_FILE = "index.json"
LAYOUT_DOCUMENT = canonical_json({"imageLayoutVersion": "1.0.0"})
MEDIA_INDEX = "application/vnd.oci.image.index.v1+json"
MEDIA_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MEDIA_CONFIG = "application/vnd.oci.image.config.v1+json"
ARTIFACT_TYPE = "application/vnd.ingot.model.v1"
MEDIA_PLAN = "application/vnd.ingot.plan.v1+json"
MEDIA_LIBRARY = "application/vnd.ingot.library.v1"
MEDIA_WEIGHTS = "application/vnd.ingot.weights.v1"
MEDIA_REPORT = "application/vnd.ingot.report.v1+json"
MEDIA_ATTACHMENT = "application/vnd.ingot.attachment.v1"
REQUIRED_LAYERS = (MEDIA_PLAN, MEDIA_LIBRARY, MEDIA_WEIGHTS, MEDIA_REPORT)
TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
REFERENCE = "org.opencontainers.image.ref.name"
TREE_DIGEST = "io.ingot.tree-digest"
PUBLICATION = "io.ingot.publication"
CREATED = "org.opencontainers.image.created"
MANIFEST = "io.ingot.manifest"
_STAGED = "io.ingot.staged"

_REFERENCE = re.compile(r"[A-Za-z0-9]+(?:(?:[-._@+]|--)[A-Za-z0-9]+)*(?:/[A-Za-z0-9]+(?:(?:[-._@+]|--)[A-Za-z0-9]+)*)*")
_GOARCH = {"x86_64": "amd64", "i686": "386", "aarch64": "arm64", "armv7": "arm", "arm": "arm", "riscv64": "riscv64"}


def check_reference(name: str) -> str:
    """``name`` if it may name a version in a layout (``1``, ``resnet50/1``).

    Raises:
        IngotError: INVALID_ARGUMENT.
    """
    if len(name) > 255 or not _REFERENCE.fullmatch(name):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "not a valid name for a version",
            field="tag",
            expected="letters and digits, separated by single '-', '.', '_', '@', '+' or '/'",
            received=repr(name)[:200],
        )
    return name


@dataclass(frozen=True)
class Descriptor:
    """Points at a blob by content."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str]

    @classmethod
    def of(cls, media_type: str, data: bytes, **annotations: str) -> Self:
        return cls(media_type, digest_of(data), len(data), annotations)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Raises IngotError ARTIFACT_CORRUPT."""
        known = {"mediaType", "digest", "size", "annotations", "platform", "artifactType"}
        if not isinstance(data, dict) or not {"mediaType", "digest", "size"} <= set(data) <= known:
            raise corrupt("a descriptor does not have the fields of a descriptor", received=repr(data))
        digest_hex(data["digest"])
        annotations = data.get("annotations", {})
        if type(data["size"]) is not int or data["size"] < 0 or not is_string_map(annotations):
            raise corrupt("a descriptor has a malformed size or annotation", received=repr(data))
        return cls(str(data["mediaType"]), data["digest"], data["size"], annotations)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        return fields | ({"annotations": dict(self.annotations)} if self.annotations else {})


@dataclass(frozen=True)
class Entry:
    """One target of a version, as its index lists it."""

    descriptor: Descriptor
    manifest: Manifest


def platform(manifest: Manifest) -> dict[str, str]:
    """OCI platform (Go's names) of a target triple."""
    architecture = manifest.triple.split("-")[0]
    system = "linux" if "linux" in manifest.triple else manifest.triple.split("-")[-1]
    fields = {"architecture": _GOARCH.get(architecture, architecture), "os": system}
    if architecture.startswith("armv7"):
        fields |= {"architecture": "arm", "variant": "v7"}
    return fields


def config_document(manifest: Manifest, layers: Sequence[Descriptor]) -> bytes:
    """An ordinary image config, so that tools that only know images can inspect a version; labels are for people."""
    labels = {
        "io.ingot.abi-version": str(manifest.abi_version),
        "io.ingot.compiler-version": manifest.compiler_version,
        "io.ingot.cpu": manifest.cpu,
        "io.ingot.features": ",".join(manifest.features),
        "io.ingot.key": manifest.key,
        "io.ingot.min-glibc": manifest.min_glibc,
        "io.ingot.name": manifest.name,
        "io.ingot.triple": manifest.triple,
    }
    rootfs = {"type": "layers", "diff_ids": [layer.digest for layer in layers]}
    return canonical_json(platform(manifest) | {"config": {"Labels": labels}, "rootfs": rootfs})


def manifest_document(
    manifest: Manifest, config: Descriptor, layers: Sequence[Descriptor], signer: SigningKey, staged: bool = False
) -> bytes:
    """The signed image manifest of one target; ``staged``: nobody has compared it with its model yet."""
    return sign_document(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_MANIFEST,
            "artifactType": ARTIFACT_TYPE,
            "config": config.to_dict(),
            "layers": [layer.to_dict() for layer in layers],
            "annotations": {MANIFEST: canonical_json(manifest.to_dict()).decode()}
            | ({_STAGED: "true"} if staged else {}),
        },
        signer,
    )


def index_document(
    name: str, version: str, entries: Sequence[Entry], signer: SigningKey, facts: Mapping[str, str] | None = None
) -> bytes:
    """The signed image index of one version of model ``name``; ``facts`` are further annotations.

    NOTE: no ``artifactType`` here, which image-spec 1.1 allows: skopeo 1.9 writes an index anew when it copies one and
    drops fields that it does not know, and with them the signature.
    """
    return sign_document(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_INDEX,
            "manifests": [_entry_to_dict(entry) for entry in entries],
            "annotations": {**(facts or {}), TITLE: name, VERSION: version},
        },
        signer,
    )


def read_index(data: bytes, trust: Trust) -> tuple[Mapping[str, str], tuple[Entry, ...]]:
    """Annotations and entries of a signed index.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT.
    """
    document = _verified(data, trust, "the version's index", MEDIA_INDEX, "manifests")
    entries = []
    for item in document["manifests"]:
        descriptor = Descriptor.from_dict(item)
        entries.append(Entry(descriptor, _embedded_manifest(descriptor.annotations)))
    if not entries:
        raise corrupt("the version's index lists no target")
    return document["annotations"], tuple(entries)


def read_manifest(
    data: bytes, trust: Trust, staged: bool = False
) -> tuple[Manifest, Descriptor, tuple[Descriptor, ...]]:
    """Manifest, config and layers of one target; of one that is only staged where ``staged`` says so.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT; ARTIFACT_INCOMPATIBLE for an ABI this tree does not read.
    """
    document = _verified(data, trust, "the target's manifest", MEDIA_MANIFEST, "layers")
    if _STAGED in document["annotations"] and not staged:
        raise IngotError(
            ErrorCode.ARTIFACT_UNTRUSTED,
            "the artifact was built, but not verified",
            remedy="Let the compile job go on to its end, or compile the model again.",
        )
    manifest = _embedded_manifest(document["annotations"])
    check_abi(manifest)
    layers = tuple(Descriptor.from_dict(layer) for layer in document["layers"])
    kinds = [layer.media_type for layer in layers if layer.media_type != MEDIA_ATTACHMENT]
    if sorted(kinds) != sorted(REQUIRED_LAYERS):
        raise corrupt(
            "the artifact does not have the layers of a model",
            expected=", ".join(REQUIRED_LAYERS),
            received=", ".join(kinds),
        )
    return manifest, Descriptor.from_dict(document.get("config")), layers


def check_abi(manifest: Manifest) -> None:
    """Raises IngotError ARTIFACT_INCOMPATIBLE for an ABI version that this tree does not read."""
    if manifest.abi_version not in SUPPORTED_ABI_VERSIONS:
        raise IngotError(
            ErrorCode.ARTIFACT_INCOMPATIBLE,
            f"the artifact was made for ABI version {manifest.abi_version} by compiler {manifest.compiler_version}",
            expected=f"ABI version {' or '.join(map(str, SUPPORTED_ABI_VERSIONS))}",
            received=str(manifest.abi_version),
            remedy="Compile the model again with a compiler of this release, or run a newer runtime.",
        )


def _entry_to_dict(entry: Entry) -> dict[str, Any]:
    annotations = {MANIFEST: canonical_json(entry.manifest.to_dict()).decode()}
    return entry.descriptor.to_dict() | {"platform": platform(entry.manifest), "annotations": annotations}


def _embedded_manifest(annotations: Mapping[str, str]) -> Manifest:
    text = annotations.get(MANIFEST, "")
    return Manifest.from_dict(parse_document(text.encode(), "the artifact's manifest annotation"))


def _verified(data: bytes, trust: Trust, what: str, media_type: str, items: str) -> dict[str, Any]:
    document = verify_document(data, trust, what, media_type)
    if document.get("schemaVersion") != 2 or not isinstance(document.get(items), list):
        raise corrupt(f"{what} is malformed", expected=f"{media_type} with {items}")
    return document
