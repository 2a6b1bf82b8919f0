"""A caller in a namespace sees what is in it, by names without the namespace; the servicer sees the names among all.

Methods that are not listed here are refused to such callers: one that is added later shows them nothing of others by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from compiler_service.api.permissions import SERVICE
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.access.gate import HEADER, Gate
from shared_ir.service_kit.access.namespace import ABOUT_MODEL, Namespace
from shared_ir.service_kit.calls.handler import with_behaviour
from shared_ir.service_kit.calls.outlet import Attach, Outlet, PassingOutlet, detached, is_detached
from shared_ir.service_kit.status import abort

NAMED = frozenset(
    {"Compile", "GetModel", "ListVersions", "SetLabel", "DeleteLabel", "DownloadArtifact", "DeleteVersion"}
    | {"DeleteModel"}
)
"""Methods whose request has the ``name`` of a model."""
NARROWED = {"ListJobs": "name", "ListEvents": "model"}
"""Methods whose request may have one, with its field. NOTE: without one, the servicer narrows their answer before it is cut in pages."""
PREFIXED = frozenset({"ListModels"})
"""Methods whose request has a ``prefix`` of names."""
OF_JOB = frozenset({"GetJob", "GetJobLog", "CancelJob", "WatchJob", "RetryJob", "GetReproducer"})
"""Methods whose request has the ``id`` of a job."""
ANYWHERE = frozenset({"QueryUpload", "UploadModel", "CheckModel", "GetCapabilities", "ListTargets"})
_NAMES = {"Job": "name", "Model": "name", "ModelVersion": "name", "AuditEvent": "model"}
"""Messages that are about a model, with the field of its name."""

NameOfJob = Callable[[str], str]
"""From the id of a job to the name of its model; raises IngotError NOT_FOUND."""


class NamespaceInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Next to the servicer: messages are parsed here."""

    def __init__(self, gate: Gate, name_of_job: NameOfJob) -> None:
        self._gate = gate
        self._name_of_job = name_of_job

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(handler_call_details)
        service, _, method = handler_call_details.method.strip("/").partition("/")
        if handler is None or service != SERVICE:
            return handler
        inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            namespace = self._enter(method, request, context)
            return _shown(namespace, inner(request, context))

        def stream(request: Any, context: grpc.ServicerContext) -> Any:
            namespace = self._enter(method, request, context)
            for response in inner(request, context):
                yield _shown(namespace, response)

        def begun(request: Any, context: grpc.ServicerContext) -> Attach:
            namespace = self._enter(method, request, context)
            attach: Attach = inner(request, context)
            return lambda outlet: attach(_ShownOutlet(outlet, namespace))

        if is_detached(inner):
            return with_behaviour(handler, detached(begun))
        return with_behaviour(handler, stream if handler.response_streaming else unary)

    def _enter(self, method: str, request: Any, context: grpc.ServicerContext) -> Namespace:
        """The namespace of the caller; ``request`` has the names among all after it. Ends the call where it asks for another's."""
        try:
            metadata: Any = context.invocation_metadata() or ()
            namespace = Namespace(self._gate.caller(dict(metadata).get(HEADER)).namespace)
            if namespace.name:
                self._narrow(method, request, namespace)
        except IngotError as error:
            abort(context, error)
        return namespace

    def _narrow(self, method: str, request: Any, namespace: Namespace) -> None:
        if method in NAMED:
            request.name = namespace.stored(request.name)
        elif method in PREFIXED:
            request.prefix = namespace.stored(request.prefix)
        elif method in NARROWED:
            name = getattr(request, NARROWED[method])
            setattr(request, NARROWED[method], namespace.stored(name) if name else "")
        elif method in OF_JOB:
            if not namespace.holds(self._name_of_job(request.id)):
                raise IngotError(ErrorCode.NOT_FOUND, f"no job {request.id!r}", field="id")
        elif method not in ANYWHERE:
            raise IngotError(
                ErrorCode.PERMISSION_DENIED,
                f"{method} is not for tokens of a namespace",
                remedy="Use a token without one.",
            )


class _ShownOutlet(PassingOutlet):
    """An outlet whose messages have the names of a namespace."""

    def __init__(self, outlet: Outlet, namespace: Namespace) -> None:
        super().__init__(outlet)
        self._namespace = namespace

    def send(self, message: Any) -> bool:
        return super().send(_shown(self._namespace, message))


def _shown(namespace: Namespace, message: Any) -> Any:
    """``message`` with names of the namespace alone: what is of others is taken out of its lists."""
    if namespace.name and not _show(namespace, message):
        raise IngotError(ErrorCode.NOT_FOUND, "there is nothing of that name")
    return message


def _show(namespace: Namespace, message: Any) -> bool:
    """Whether it is of the namespace, or of none."""
    field = _NAMES.get(message.DESCRIPTOR.name)
    if field is not None:
        name = getattr(message, field)
        setattr(message, field, namespace.shown(name))
        is_held = namespace.holds(name)
        if is_held:
            _tell(namespace, message, name)
        return is_held
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if not field.is_repeated:
            if not _show(namespace, value):
                return False
        elif not field.message_type.GetOptions().map_entry:
            kept = [item for item in value if _show(namespace, item)]
            if len(kept) < len(value):
                del value[:]
                value.extend(kept)
    return True


def _tell(namespace: Namespace, message: Any, stored: str) -> None:
    """Errors in ``message``, which is about the model ``stored``, call it as it is called here."""
    if message.DESCRIPTOR.name == "ErrorDetail":
        for name in ABOUT_MODEL:
            setattr(message, name, namespace.text(getattr(message, name), stored))
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            for item in value if field.is_repeated else (value,):
                _tell(namespace, item, stored)
