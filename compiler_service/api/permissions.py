"""What a token must be good for, by method."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shared_ir.service_kit.access.principal import EVERY_SCOPE, Scope

SERVICE = "ingot.compiler.v1.CompilerService"
_REFLECTION = "/grpc.reflection."
"""Tells what methods there are, which the source of the service does too: any token is good for it."""

SCOPES: Mapping[str, Collection[Scope]] = {
    "QueryUpload": (Scope.UPLOAD,),
    "UploadModel": (Scope.UPLOAD,),
    "CheckModel": (Scope.COMPILE,),
    "Compile": (Scope.COMPILE, Scope.PUBLISH),  # and LABEL where it names labels: the servicer sees to that
    "CancelJob": (Scope.COMPILE,),
    "RetryJob": (Scope.COMPILE, Scope.PUBLISH),
    "GetReproducer": (Scope.READ,),
    "GetJob": (Scope.READ,),
    "GetJobLog": (Scope.READ,),
    "ListJobs": (Scope.READ,),
    "WatchJob": (Scope.READ,),
    "ListModels": (Scope.READ,),
    "GetModel": (Scope.READ,),
    "ListVersions": (Scope.READ,),
    "DownloadArtifact": (Scope.READ,),
    "SetLabel": (Scope.LABEL,),
    "DeleteLabel": (Scope.LABEL,),
    "DeleteVersion": (Scope.DELETE,),
    "DeleteModel": (Scope.DELETE,),  # with its labels, where it is forced
    "ListEvents": (Scope.READ,),
    "GetCapabilities": (),
    "ListTargets": (),
}


_CHANGING = frozenset({Scope.PUBLISH, Scope.LABEL, Scope.DELETE})
_ALSO_CHANGING = frozenset({"CancelJob"})


def is_change(method: str) -> bool:
    """Whether a method, by its full name, changes what others see: who called it is told apart from other lines of the log."""
    name = method.rpartition("/")[2]
    return name in _ALSO_CHANGING or (method.startswith(f"/{SERVICE}/") and bool(_CHANGING & set(scopes_of(method))))


def scopes_of(method: str) -> Collection[Scope]:
    """By the full name of a method; one that is not in the table needs every scope."""
    if method.startswith(_REFLECTION):
        return ()
    service, _, name = method.strip("/").partition("/")
    return SCOPES.get(name, EVERY_SCOPE) if service == SERVICE else EVERY_SCOPE
