"""Model versions in a directory: write them, and open them after checking every byte."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from shared_ir.artifact.host import best_for_host
from shared_ir.artifact.oci import (
    INDEX_FILE,
    LAYOUT_DOCUMENT,
    LAYOUT_FILE,
    MEDIA_ATTACHMENT,
    MEDIA_CONFIG,
    MEDIA_INDEX,
    MEDIA_LIBRARY,
    MEDIA_MANIFEST,
    MEDIA_PLAN,
    MEDIA_REPORT,
    MEDIA_WEIGHTS,
    REFERENCE,
    TITLE,
    TREE_DIGEST,
    VERSION,
    Descriptor,
    Entry,
    check_reference,
    config_document,
    index_document,
    manifest_document,
    read_index,
    read_manifest,
)
from shared_ir.artifact.signature import SigningKey, Trust, Witness
from shared_ir.artifact.signed import MAX_DOCUMENT_BYTES, corrupt, parse_document
from shared_ir.artifact.value import CompiledArtifact, Manifest
from shared_ir.digest import canonical_json, digest_hex, digest_of, digest_of_file, tree_digest
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.plan.json_form import read_plan, write_plan
from shared_ir.plan.program import Plan
from shared_ir.storage.files import create_atomically, map_file, write_atomically
from shared_ir.storage.sealed import read_sealed

Choose = Callable[[Sequence[Manifest]], Manifest]
"""Picks the target to open among those of a version."""


class Blobs(Protocol):
    """Content-addressed bytes."""

    def put(self, digest: str, data: bytes | memoryview | Path) -> None:
        """Store ``data``, whose digest is ``digest``; nothing happens when it is there already."""

    def path(self, digest: str, limit: int | None = None) -> Path:
        """A local file with the blob, not verified yet.

        Raises:
            IngotError: ARTIFACT_CORRUPT, it is missing; LIMIT_EXCEEDED, it is to be fetched and has more than ``limit`` bytes.
        """


@dataclass(frozen=True)
class DirectoryBlobs:
    """``blobs/sha256`` of an OCI image layout."""

    directory: Path

    def put(self, digest: str, data: bytes | memoryview | Path) -> None:
        path = self._path(digest)
        if not path.exists():
            create_atomically(path, data)

    def path(self, digest: str, limit: int | None = None) -> Path:
        path = self._path(digest)
        if not path.is_file():
            raise corrupt("a blob of the artifact is missing", field=str(path))
        return path

    def _path(self, digest: str) -> Path:
        return self.directory / "blobs" / "sha256" / digest_hex(digest)


@dataclass(frozen=True)
class StoredFile:
    """A file of an artifact that is read only where somebody wants it, and verified then."""

    path: Path
    digest: str
    size: int

    def read(self) -> bytes:
        """Raises IngotError ARTIFACT_CORRUPT."""
        data = self.path.read_bytes()
        _check_digest(self.path, self.digest, digest_of(data))
        return data


@dataclass(frozen=True)
class OpenedArtifact:
    """An artifact whose signature, ABI, sizes and digests have been checked.

    Attributes:
        library: the verified bytes of ``model.so``; ``library_path`` is the file they were read from.
        weights: ``weights.bin`` in memory that nobody else can change, page aligned, verified; empty when the model has none, and
            ``weights_path`` is ``os.devnull`` then.
        attachments: files by name.
        plan_digest: of ``plan.json`` as it was read.
        signers: ids of the keys that signed it.
    """

    manifest: Manifest
    plan: Plan
    library: bytes = field(repr=False)
    library_path: Path
    weights: memoryview = field(repr=False)
    weights_path: Path
    report: Mapping[str, Any] = field(repr=False)
    attachments: Mapping[str, StoredFile]
    plan_digest: str
    signers: frozenset[str] = frozenset()

    def to_artifact(self) -> CompiledArtifact:
        attachments = {name: file.read() for name, file in self.attachments.items()}
        return CompiledArtifact(self.manifest, self.plan, self.library, self.weights, self.report, attachments)


def save_version(
    directory: Path, tag: str, artifacts: Sequence[CompiledArtifact], signer: SigningKey, name: str | None = None
) -> str:
    """Write ``artifacts``, one per target, as version ``tag`` into the OCI image layout at ``directory``.

    Other versions in the layout stay; an earlier one of the same tag is replaced. The index is written last, so that a
    reader sees all of the version or none. Returns the digest of the version's image index.
    """
    check_reference(tag)
    if not artifacts:
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "a version needs at least one artifact", field="artifacts")
    blobs = DirectoryBlobs(directory)
    entries = [pack(artifact, signer, blobs) for artifact in artifacts]
    index = pack_index(name or artifacts[0].manifest.name, tag, entries, signer, blobs)
    others = [d for d in read_references(directory) if d.annotations.get(REFERENCE) != tag]
    write_references(directory, [*others, tagged(index, tag)])
    return index.digest


def pack(artifact: CompiledArtifact, signer: SigningKey, blobs: Blobs, staged: bool = False) -> Entry:
    """Store one artifact's blobs and its signed manifest; the entry belongs in an index."""
    layers = [
        _put(blobs, MEDIA_PLAN, write_plan(artifact.plan).encode(), "plan.json"),
        _put(blobs, MEDIA_LIBRARY, artifact.library, "model.so"),
        _put_weights(blobs, artifact.weights),
        _put(blobs, MEDIA_REPORT, canonical_json(dict(artifact.report)), "report.json"),
    ]
    layers += [_put(blobs, MEDIA_ATTACHMENT, data, title) for title, data in sorted(artifact.attachments.items())]
    config = _put(blobs, MEDIA_CONFIG, config_document(artifact.manifest, layers))
    manifest = _put(blobs, MEDIA_MANIFEST, manifest_document(artifact.manifest, config, layers, signer, staged))
    return Entry(manifest, artifact.manifest)


def with_report(data: bytes, report: Mapping[str, Any], trust: Trust, signer: SigningKey, blobs: Blobs) -> Entry:
    """The artifact whose staged manifest is ``data`` with another report, verified now: code and weights are those that it named."""
    manifest, _, layers = read_manifest(data, trust, staged=True)
    written = _put(blobs, MEDIA_REPORT, canonical_json(dict(report)), "report.json")
    layers = tuple(written if layer.media_type == MEDIA_REPORT else layer for layer in layers)
    config = _put(blobs, MEDIA_CONFIG, config_document(manifest, layers))
    return Entry(_put(blobs, MEDIA_MANIFEST, manifest_document(manifest, config, layers, signer)), manifest)


def pack_index(
    name: str,
    version: str,
    entries: Sequence[Entry],
    signer: SigningKey,
    blobs: Blobs,
    facts: Mapping[str, str] | None = None,
) -> Descriptor:
    """Store the signed index of a version; its descriptor belongs in ``index.json``."""
    return _put(blobs, MEDIA_INDEX, index_document(name, version, entries, signer, facts))


def tagged(descriptor: Descriptor, tag: str) -> Descriptor:
    return Descriptor(descriptor.media_type, descriptor.digest, descriptor.size, {REFERENCE: tag})


def write_references(directory: Path, descriptors: Sequence[Descriptor]) -> None:
    """Write ``oci-layout`` and ``index.json`` for these tagged descriptors."""
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / LAYOUT_FILE, LAYOUT_DOCUMENT)
    write_atomically(directory / INDEX_FILE, references_document(descriptors))


def references_document(descriptors: Sequence[Descriptor]) -> bytes:
    """``index.json`` for these tagged descriptors."""
    items = [d.to_dict() for d in sorted(descriptors, key=lambda d: d.annotations.get(REFERENCE, ""))]
    return canonical_json({"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": items})


def read_references(directory: Path) -> tuple[Descriptor, ...]:
    """The tagged descriptors of a layout, none if there is no layout yet.

    Raises:
        IngotError: ARTIFACT_CORRUPT.
    """
    if not (directory / INDEX_FILE).exists():
        return ()
    try:
        layout = parse_document((directory / LAYOUT_FILE).read_bytes(), LAYOUT_FILE)
        document = parse_document((directory / INDEX_FILE).read_bytes(), INDEX_FILE)
    except OSError as error:
        raise corrupt(f"the layout cannot be read: {error.strerror}", field=str(directory)) from error
    if layout != {"imageLayoutVersion": "1.0.0"}:
        raise corrupt(f"{LAYOUT_FILE} is not of an OCI image layout 1.0.0", field=str(directory))
    known = {"schemaVersion", "mediaType", "manifests", "annotations"}
    manifests = document.get("manifests")
    if document.get("schemaVersion") != 2 or not set(document) <= known or not isinstance(manifests, list):
        raise corrupt(f"{INDEX_FILE} is not an image index", field=str(directory))
    if document.get("mediaType", MEDIA_INDEX) != MEDIA_INDEX:
        raise corrupt(f"{INDEX_FILE} is not an image index", received=str(document.get("mediaType")))
    return tuple(Descriptor.from_dict(item) for item in manifests)


def named(directory: Path, descriptor: Descriptor, trust: Trust) -> tuple[str, str]:
    """Of which model and version the index of ``descriptor`` was signed for.

    Raises:
        IngotError: ARTIFACT_UNTRUSTED, ARTIFACT_CORRUPT.
    """
    annotations, _ = read_index(_read(DirectoryBlobs(directory), descriptor, MAX_DOCUMENT_BYTES), trust)
    return annotations.get(TITLE, ""), annotations.get(VERSION, "")


def open_version(directory: Path, tag: str | None, trust: Trust, choose: Choose = best_for_host) -> OpenedArtifact:
    """Check and open one target of version ``tag`` (``None``: the only version) of the layout at ``directory``.

    Order: signature, ABI, then size and digest of every blob; nothing is mapped as code here.

    Raises:
        IngotError: NOT_FOUND, ARTIFACT_UNTRUSTED, ARTIFACT_INCOMPATIBLE, ARTIFACT_CORRUPT.
    """
    found = _find_tag(directory, tag)
    title, version = _named_by(found.annotations.get(REFERENCE, ""))
    return open_descriptor(DirectoryBlobs(directory), found, trust, choose, title, version)


def open_descriptor(
    blobs: Blobs, descriptor: Descriptor, trust: Trust, choose: Choose, title: str = "", version: str = ""
) -> OpenedArtifact:
    """As :func:`open_version`; ``title`` and ``version``, when given, must be those that the index was signed for."""
    witness = Witness(trust)
    if descriptor.media_type == MEDIA_INDEX:
        annotations, entries = read_index(_read(blobs, descriptor, MAX_DOCUMENT_BYTES), witness)
        for name, wanted in ((TITLE, title), (VERSION, version)):
            if wanted and annotations.get(name) != wanted:
                raise corrupt(
                    "the index belongs to another version", expected=wanted, received=annotations.get(name, "")
                )
        chosen = choose([entry.manifest for entry in entries])
        descriptor = next(entry.descriptor for entry in entries if entry.manifest == chosen)
        opened = open_target(blobs, descriptor, witness)
        if opened.manifest != chosen:
            raise corrupt("the index describes another artifact than the one it points at", received=descriptor.digest)
        return replace(opened, signers=frozenset(witness.used))
    if descriptor.media_type != MEDIA_MANIFEST:
        raise corrupt("this is not a model version", expected=MEDIA_INDEX, received=descriptor.media_type)
    return replace(open_target(blobs, descriptor, witness), signers=frozenset(witness.used))


def list_targets(directory: Path, tag: str | None, trust: Trust) -> tuple[Manifest, ...]:
    """The manifests of a version's targets, signature checked."""
    blobs, descriptor = DirectoryBlobs(directory), _find_tag(directory, tag)
    data = _read(blobs, descriptor, MAX_DOCUMENT_BYTES)
    if descriptor.media_type == MEDIA_MANIFEST:
        return (read_manifest(data, trust)[0],)
    return tuple(entry.manifest for entry in read_index(data, trust)[1])


def open_target(blobs: Blobs, descriptor: Descriptor, trust: Trust, staged: bool = False) -> OpenedArtifact:
    """As :func:`open_descriptor`, of one target's manifest; it may be ``staged``."""
    manifest, config, layers = read_manifest(_read(blobs, descriptor, MAX_DOCUMENT_BYTES), trust, staged)
    _read(blobs, config, MAX_DOCUMENT_BYTES)
    by_type = {layer.media_type: layer for layer in layers if layer.media_type != MEDIA_ATTACHMENT}
    plan_text, report_text = _read(blobs, by_type[MEDIA_PLAN]), _read(blobs, by_type[MEDIA_REPORT])
    library, weights = by_type[MEDIA_LIBRARY], by_type[MEDIA_WEIGHTS]
    attachments = {}
    for layer in layers:
        if layer.media_type == MEDIA_ATTACHMENT:
            path = _path(blobs, layer)
            _check_size(path, layer)
            attachments[layer.annotations.get(TITLE, layer.digest)] = StoredFile(path, layer.digest, layer.size)
    return OpenedArtifact(
        manifest=manifest,
        plan=read_plan(plan_text),
        library=_read(blobs, library),
        library_path=blobs.path(library.digest, library.size),
        weights=_sealed_weights(blobs, weights),
        weights_path=_path(blobs, weights),
        report=json.loads(report_text),
        attachments=attachments,
        plan_digest=by_type[MEDIA_PLAN].digest,
    )


def read_report(blobs: Blobs, descriptor: Descriptor, trust: Trust) -> Mapping[str, Any]:
    """``report.json`` of one target's manifest, verified."""
    _, _, layers = read_manifest(_read(blobs, descriptor, MAX_DOCUMENT_BYTES), trust)
    found: Mapping[str, Any] = json.loads(
        next(_read(blobs, layer) for layer in layers if layer.media_type == MEDIA_REPORT)
    )
    return found


def _named_by(tag: str) -> tuple[str, str]:
    """The model and version that an index must be of, as far as its tag is one that a service gives: ``3``, ``resnet50/3``.

    NOTE: any other tag is its owner's, who may have copied a version under it.
    """
    title, _, version = tag.rpartition("/")
    return (title, version) if version.isdecimal() else ("", "")


def _find_tag(directory: Path, tag: str | None) -> Descriptor:
    descriptors = read_references(directory)
    found = [d for d in descriptors if tag is None or d.annotations.get(REFERENCE) == tag]
    if len(found) != 1:
        tags = ", ".join(sorted(d.annotations.get(REFERENCE, "?") for d in descriptors))
        raise IngotError(
            ErrorCode.NOT_FOUND,
            f"no single version {tag!r} here" if tag else "this is not a directory with exactly one model version",
            field=str(directory),
            expected=f"one of {tags}" if tags else "an OCI image layout with a model version",
        )
    return found[0]


def _put(blobs: Blobs, media_type: str, data: bytes, title: str = "") -> Descriptor:
    descriptor = Descriptor.of(media_type, data, **({TITLE: title} if title else {}))
    blobs.put(descriptor.digest, data)
    return descriptor


def _put_weights(blobs: Blobs, weights: bytes | memoryview | Path) -> Descriptor:
    if isinstance(weights, Path):
        digest, view = digest_of_file(weights), map_file(weights)
    else:
        view = memoryview(weights).cast("B")
        digest = digest_of(view)
    blobs.put(digest, weights if isinstance(weights, Path) else view)
    annotations = {TITLE: "weights.bin", TREE_DIGEST: tree_digest(view)}
    return Descriptor(MEDIA_WEIGHTS, digest, len(view), annotations)


def _read(blobs: Blobs, descriptor: Descriptor, limit: int | None = None) -> bytes:
    """The verified bytes of a blob."""
    path = _path(blobs, descriptor)
    _check_size(path, descriptor)
    if limit is not None and descriptor.size > limit:
        raise corrupt("a document of the artifact is too large", expected=f"at most {limit} bytes", field=str(path))
    with path.open("rb") as file:
        data = file.read(descriptor.size)  # and no more, should it have grown
    _check_digest(path, descriptor.digest, digest_of(data))
    return data


def _sealed_weights(blobs: Blobs, descriptor: Descriptor) -> memoryview:
    """Read, and verify the very bytes that will be used. The tree digest is part of the signed manifest."""
    path = _path(blobs, descriptor)
    _check_size(path, descriptor)
    view, received = read_sealed(path, descriptor.size)
    expected = descriptor.annotations.get(TREE_DIGEST)
    if expected is None:
        _check_digest(path, descriptor.digest, digest_of(view))
    else:
        _check_digest(path, expected, received)
    return view


def _path(blobs: Blobs, descriptor: Descriptor) -> Path:
    """NOTE: what is empty needs no file: who copies a layout may have left it out (KServe's storage initializer does)."""
    return blobs.path(descriptor.digest, descriptor.size) if descriptor.size else Path(os.devnull)


def _check_size(path: Path, descriptor: Descriptor) -> None:
    size = path.stat().st_size
    if size != descriptor.size:
        raise corrupt(
            "a blob has the wrong size", field=str(path), expected=f"{descriptor.size} bytes", received=f"{size} bytes"
        )


def _check_digest(path: Path, expected: str, received: str) -> None:
    if expected != received:
        raise corrupt(
            "a blob is not what it was when it was signed", field=str(path), expected=expected, received=received
        )
