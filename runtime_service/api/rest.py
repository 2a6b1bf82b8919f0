"""The REST routes of the Open Inference Protocol v2 and of Triton's extensions."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import unquote

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from runtime_service.api import documents, rest_codec
from runtime_service.api.http_message import HttpRequest, HttpResponse, parse_json
from runtime_service.batching.messages import Cancellation
from runtime_service.dataplane import DataPlane
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.bearer import HEADER, Bearer, refused
from shared_ir.service_kit.status import RETRY_SECONDS, http_headers, http_status, internal

_LOG = logging.getLogger(__name__)
Handler = Callable[[HttpRequest, str, str], HttpResponse]
"""Takes the request, and model name and version from the path (empty where the path has none)."""

_MODEL = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_LARGE_BYTES = 1 << 18
_LARGE_DOCUMENT = threading.BoundedSemaphore(1)
"""Held while a document of more than so many bytes is parsed: one after the other takes the interpreter no longer than all at once, and
the memory of one."""
_OPEN_PATHS = ("/v2/health/", "/metrics")


class RestApplication:
    """Maps requests to the data plane. Never raises; what goes wrong becomes ``{"error": ...}`` with a status."""

    def __init__(self, dataplane: DataPlane, registry: CollectorRegistry, token: str = "") -> None:
        self._dataplane = dataplane
        self._registry = registry
        self._bearer = Bearer(token) if token else None
        self._routes: tuple[tuple[re.Pattern[str], Mapping[str, Handler]], ...] = (
            (re.compile(_MODEL + "/infer"), {"POST": self._infer}),
            (re.compile("/v2/health/live"), {"GET": self._live}),
            (re.compile("/v2/health/ready"), {"GET": self._ready}),
            (re.compile(_MODEL + "/ready"), {"GET": self._model_ready}),
            (re.compile("/v2/?"), {"GET": self._server_metadata}),
            (re.compile("/v2/models/stats"), {"GET": self._statistics}),
            (re.compile(_MODEL + "/stats"), {"GET": self._statistics}),
            (re.compile(_MODEL + "/config"), {"GET": self._config}),
            (re.compile(_MODEL), {"GET": self._model_metadata}),
            (re.compile("/v2/repository/index"), {"POST": self._index}),
            (re.compile("/v2/repository/models/(?P<model>[^/]+)/load"), {"POST": self._load}),
            (re.compile("/v2/repository/models/(?P<model>[^/]+)/unload"), {"POST": self._unload}),
            (re.compile("/metrics"), {"GET": self._metrics}),
        )

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._route(request)
        except IngotError as error:
            return HttpResponse.error(http_status(error), str(error), http_headers(error))
        except Exception as error:
            _LOG.exception("%s %s failed", request.method, request.path)
            return HttpResponse.error(HTTPStatus.INTERNAL_SERVER_ERROR, str(internal(error)))

    def _route(self, request: HttpRequest) -> HttpResponse:
        bearer = None if request.path.startswith(_OPEN_PATHS) else self._bearer
        if bearer is not None and not bearer.accepts(request.headers.get(HEADER)):
            return HttpResponse.error(HTTPStatus.UNAUTHORIZED, str(refused()), {"WWW-Authenticate": "Bearer"})
        for pattern, handlers in self._routes:
            if (match := pattern.fullmatch(request.path)) is None:
                continue
            handler = handlers.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                allowed = ", ".join(handlers)
                message = f"{request.method} is not allowed here, only {allowed}"
                return HttpResponse.error(HTTPStatus.METHOD_NOT_ALLOWED, message, {"Allow": allowed})
            named = match.groupdict()
            return handler(request, unquote(named.get("model") or ""), unquote(named.get("version") or ""))
        return HttpResponse.error(HTTPStatus.NOT_FOUND, f"no such path: {request.path[:200]}")

    def _infer(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        length = request.headers.get(rest_codec.JSON_LENGTH)
        if length == "0":
            expected = self._dataplane.model_metadata(model, version).signature
            decoded, binary = rest_codec.decode_raw(model, version, request.body, expected)
        else:
            with _LARGE_DOCUMENT if _is_large(request.body, length) else nullcontext():
                decoded, binary = rest_codec.decode(model, version, request.body, length)
        decoded = replace(decoded, cancellation=Cancellation(request.has_gone))
        return rest_codec.encode(self._dataplane.infer(decoded), binary)

    def _live(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return _truth(self._dataplane.live())

    def _ready(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return _truth(self._dataplane.ready())

    def _model_ready(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return _truth(self._dataplane.model_ready(model, version))

    def _server_metadata(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return HttpResponse.json(documents.server_metadata(self._dataplane.server_metadata()))

    def _model_metadata(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return HttpResponse.json(documents.model_metadata(self._dataplane.model_metadata(model, version)))

    def _config(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return HttpResponse.json(documents.model_config(self._dataplane.model_config(model, version)))

    def _statistics(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        found = self._dataplane.model_statistics(model, version)
        return HttpResponse.json({"model_stats": [documents.model_statistics(item) for item in found]})

    def _index(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        ready = bool(_object(request).get("ready", False))
        return HttpResponse.json([documents.version_status(s) for s in self._dataplane.repository_index(ready)])

    def _load(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        parameters = _object(request).get("parameters", {})
        if not isinstance(parameters, dict):
            raise IngotError(ErrorCode.INVALID_ARGUMENT, "parameters must be an object", field="parameters")
        unknown = [name for name in parameters if name != "policy"]
        if unknown:
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT,
                "unknown parameter of a load request",
                field=unknown[0][:100],
                expected="'policy'",
                remedy="Models come from the artifact store, with the configuration of this server.",
            )
        self._dataplane.load(model, str(parameters.get("policy", "")))
        return HttpResponse()

    def _unload(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        self._dataplane.unload(model)
        return HttpResponse()

    def _metrics(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return metrics_response(self._registry, request)


def _is_large(body: bytes | memoryview, json_length: str | None) -> bool:
    """Whether the JSON part of ``body`` is; without a length that is a number it is all of it."""
    told = int(json_length[:18]) if json_length is not None and json_length.isdecimal() else len(body)
    return min(told, len(body)) > _LARGE_BYTES


def metrics_response(registry: CollectorRegistry, request: HttpRequest) -> HttpResponse:
    """A scrape, in the format that the ``Accept`` header asks for."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return HttpResponse(parts=(encode(registry),), headers={"Content-Type": content_type})


def metrics_application(registry: CollectorRegistry) -> Callable[[HttpRequest], HttpResponse]:
    """What the metrics port serves."""

    def application(request: HttpRequest) -> HttpResponse:
        if request.path != "/metrics" or request.method not in ("GET", "HEAD"):
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "only GET /metrics is served here")
        return metrics_response(registry, request)

    return application


def _truth(value: bool) -> HttpResponse:
    """200 or 503, with an empty body."""
    if value:
        return HttpResponse()
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, headers={"Retry-After": str(RETRY_SECONDS)})


def _object(request: HttpRequest) -> dict[str, object]:
    document = parse_json(request.body) if len(request.body) else {}
    if not isinstance(document, dict):
        raise IngotError(ErrorCode.INVALID_ARGUMENT, "the body of the request is not a JSON object", field="body")
    return document
