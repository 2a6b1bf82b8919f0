"""As :mod:`compiler_service.api.converters`, of published models."""

from __future__ import annotations

from compiler_service.api.converters import seconds_from_pb
from shared_ir.artifact.audit import Change
from shared_ir.artifact.published import PublishedLabel, Version, check_label
from shared_ir.artifact.value import Manifest
from shared_ir.pb.ingot.compiler.v1 import compiler_pb2 as pb
from shared_ir.registry.pages import ChangeFilter, ModelFilter, ModelSummary, VersionFilter
from shared_ir.service_kit.status import error_to_pb


def model_to_pb(model: ModelSummary) -> pb.Model:
    labels = {label.label: label.number for label in model.labels}
    details = [_label_to_pb(label) for label in model.labels]
    error = error_to_pb(model.error) if model.error else None
    return pb.Model(name=model.name, latest_version=model.newest, labels=labels, label_details=details, error=error)


def _label_to_pb(label: PublishedLabel) -> pb.Label:
    message = pb.Label(label=label.label, version=label.number, etag=label.etag, by=label.by)
    message.moved.FromMicroseconds(label.moved)  # a generation is a time
    return message


def version_to_pb(version: Version) -> pb.ModelVersion:
    message = pb.ModelVersion(
        name=version.name,
        version=version.number,
        model_sha256=version.model_sha256,
        job_id=version.publication,
        digest=version.index.digest,
        targets=[_artifact_to_pb(manifest) for manifest in version.targets],
    )
    message.created.FromNanoseconds(int(version.created * 1e9))
    return message


def _artifact_to_pb(manifest: Manifest) -> pb.TargetArtifact:
    return pb.TargetArtifact(
        key=manifest.key,
        triple=manifest.triple,
        cpu=manifest.cpu,
        features=manifest.features,
        abi_version=manifest.abi_version,
        min_glibc=manifest.min_glibc,
        compiler_version=manifest.compiler_version,
    )


def change_to_pb(change: Change) -> pb.AuditEvent:
    message = pb.AuditEvent(
        id=change.id,
        action=change.action,
        by=change.by,
        model=change.model,
        version=change.version,
        label=change.label,
        before=change.before,
        after=change.after,
    )
    message.time.FromMicroseconds(round(change.time * 1e6))
    return message


def model_filter_from_pb(request: pb.ListModelsRequest) -> ModelFilter:
    """Raises IngotError INVALID_ARGUMENT."""
    return ModelFilter(request.prefix, check_label(request.label) if request.label else "")


def version_filter_from_pb(request: pb.ListVersionsRequest) -> VersionFilter:
    return VersionFilter(
        request.target, seconds_from_pb("since", request.since), seconds_from_pb("until", request.until)
    )


def change_filter_from_pb(request: pb.ListEventsRequest, prefix: str) -> ChangeFilter:
    """Of models whose name starts with ``prefix`` alone."""
    since, until = seconds_from_pb("since", request.since), seconds_from_pb("until", request.until)
    return ChangeFilter(request.model, request.action, request.by, since, until, prefix)
