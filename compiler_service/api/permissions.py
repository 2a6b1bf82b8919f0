"""What a token must be good for, by method."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shared_ir.service_kit.access.principal import EVERY_SCOPE, TokenScope

SERVICE = "ingot.compiler.v1.CompilerService"
_REFLECTION = "/grpc.reflection."
"""Tells what methods there are, which the source of the service does too: any token is good for it."""

SCOPES: Mapping[str, Collection[TokenScope]] = {
    "QueryUpload": (TokenScope.UPLOAD,),
    "UploadModel": (TokenScope.UPLOAD,),
    "CheckModel": (TokenScope.COMPILE,),
    "Compile": (TokenScope.COMPILE, TokenScope.PUBLISH),  # and LABEL where it names labels: the servicer sees to that
    "CancelJob": (TokenScope.COMPILE,),
    "RetryJob": (TokenScope.COMPILE, TokenScope.PUBLISH),
    "GetReproducer": (TokenScope.READ,),
    "GetJob": (TokenScope.READ,),
    "GetJobLog": (TokenScope.READ,),
    "ListJobs": (TokenScope.READ,),
    "WatchJob": (TokenScope.READ,),
    "ListModels": (TokenScope.READ,),
    "GetModel": (TokenScope.READ,),
    "ListVersions": (TokenScope.READ,),
    "DownloadArtifact": (TokenScope.READ,),
    "SetLabel": (TokenScope.LABEL,),
    "DeleteLabel": (TokenScope.LABEL,),
    "DeleteVersion": (TokenScope.DELETE,),
    "DeleteModel": (TokenScope.DELETE,),  # with its labels, where it is forced
    "ListEvents": (TokenScope.READ,),
    "GetCapabilities": (),
    "ListTargets": (),
}


_CHANGING = frozenset({TokenScope.PUBLISH, TokenScope.LABEL, TokenScope.DELETE})
_ALSO_CHANGING = frozenset({"CancelJob"})


def is_change(method: str) -> bool:
    """Whether a method, by its full name, changes what others see: who called it is told apart from other lines of the log."""
    name = method.rpartition("/")[2]
    return name in _ALSO_CHANGING or (method.startswith(f"/{SERVICE}/") and bool(_CHANGING & set(scopes_of(method))))


def scopes_of(method: str) -> Collection[TokenScope]:
    """By the full name of a method; one that is not in the table needs every scope."""
    if method.startswith(_REFLECTION):
        return ()
    service, _, name = method.strip("/").partition("/")
    return SCOPES.get(name, EVERY_SCOPE) if service == SERVICE else EVERY_SCOPE
