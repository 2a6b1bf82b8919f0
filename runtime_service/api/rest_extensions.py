"""Routes of Triton's extensions: shared memory, and settings of log and traces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from runtime_service.api import documents
from runtime_service.dataplane import DataPlane, no_admin
from runtime_service.extensions.shared_memory import no_cuda
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.http.message import HttpRequest, HttpResponse, json_bytes, parse_json

Handler = Callable[[HttpRequest, str, str], HttpResponse]
"""Takes the request, and the names of a model or region and of a version from the path (empty where the path has none)."""
Routes = tuple[tuple[re.Pattern[str], Mapping[str, Handler]], ...]
ADMIN = re.compile(r"/v2/logging|/v2/(?:models/[^/]+/)?trace/setting")
"""Paths of settings."""


class Extensions:
    """``admin``: whether settings of log and traces may be seen and changed here at all."""

    def __init__(self, dataplane: DataPlane, admin: bool) -> None:
        self._dataplane = dataplane
        self._admin = admin

    def routes(self) -> Routes:
        regions = r"/v2/{}sharedmemory(?:/region/(?P<model>[^/]+))?/{}"
        settings: Mapping[str, Handler] = {"GET": self._trace, "POST": self._trace}
        return (
            (re.compile(regions.format("system", "status")), {"GET": self._status}),
            (re.compile(regions.format("system", "register").replace(")?/", ")/")), {"POST": self._register}),
            (re.compile(regions.format("system", "unregister")), {"POST": self._unregister}),
            (re.compile(regions.format("cuda", "(?:status|(?:un)?register)")), {"GET": self._cuda, "POST": self._cuda}),
            (re.compile("/v2/trace/setting"), settings),
            (re.compile("/v2/models/(?P<model>[^/]+)/trace/setting"), settings),
            (re.compile("/v2/logging"), {"GET": self._log, "POST": self._log}),
        )

    def _status(self, request: HttpRequest, region: str, version: str) -> HttpResponse:
        return HttpResponse.json([documents.region(each) for each in self._dataplane.shared_memory.status(region)])

    def _register(self, request: HttpRequest, region: str, version: str) -> HttpResponse:
        document = json_object(request)
        key, offset, size = document.get("key"), document.get("offset", 0), document.get("byte_size")
        if not isinstance(key, str):
            raise _malformed("key", "a string", key)
        self._dataplane.shared_memory.register(region, key, _whole("offset", offset), _whole("byte_size", size))
        return HttpResponse()

    def _unregister(self, request: HttpRequest, region: str, version: str) -> HttpResponse:
        self._dataplane.shared_memory.unregister(region)
        return HttpResponse()

    def _cuda(self, request: HttpRequest, region: str, version: str) -> HttpResponse:
        """NOTE: clients forget all regions of both kinds before they begin; there are none of this one."""
        if region:
            raise no_cuda()
        return HttpResponse.json([]) if request.method == "GET" else HttpResponse()

    def _trace(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        self._check_admin()
        changes = None
        if request.method == "POST":
            changes = {name: _texts(name, value) for name, value in json_object(request).items()}
        found = self._dataplane.trace_setting(model, changes).document()
        # NOTE: as Triton has it: levels are a list, everything else is one text
        return HttpResponse.json({n: values if n == "trace_level" else values[0] for n, values in found.items()})

    def _log(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        self._check_admin()
        changes = json_object(request) if request.method == "POST" else {}
        return HttpResponse.json(self._dataplane.log_settings(changes))

    def _check_admin(self) -> None:
        if not self._admin:
            raise no_admin()


def json_object(request: HttpRequest) -> dict[str, object]:
    """The body of a request, nothing of it being an empty object; raises IngotError INVALID_ARGUMENT."""
    json_bytes(request.body)
    document = parse_json(request.body) if len(request.body) else {}
    if not isinstance(document, dict):
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "the body of the request is not a JSON object", field="body")
    return document


def _texts(name: str, value: object) -> list[str]:
    """The value of a setting: of several texts, of one, or none."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(each, bool) or not isinstance(each, str | int) for each in values):
        raise _malformed(name, "a string, a list of strings, or null", value)
    return [str(each)[:100] for each in values]


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _malformed(name, "a whole number", value)
    return value


def _malformed(name: str, expected: str, received: object) -> IngotError:
    message, shown = "a field of the request is missing or of the wrong kind", repr(received)[:100]
    return IngotError(ErrorCode.INVALID_ARGUMENT, message, field=name[:100], expected=expected, received=shown)
