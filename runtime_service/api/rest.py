"""The REST routes of the Open Inference Protocol v2 and of Triton's extensions."""

from __future__ import annotations

import functools
import logging
import re
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from runtime_service.api import documents, rest_codec
from runtime_service.api.deadline import deadline
from runtime_service.api.rest_document import BinaryOutputs, Document, Documents
from runtime_service.api.rest_extensions import ADMIN, Extensions, Handler, Routes, json_object
from runtime_service.batching.messages import (
    NOWHERE,
    REQUEST_ID,
    SPLIT_KEY,
    Cancellation,
    InferRequest,
    Origin,
    SharedTensor,
    TensorData,
)
from runtime_service.batching.quick import MOST_MESSAGE_BYTES
from runtime_service.batching.taking import taking
from runtime_service.dataplane import DataPlane, no_control
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.numerals import whole_number
from shared_ir.service_kit.access.gate import HEADER, SingleToken, unauthenticated
from shared_ir.service_kit.http.hosts import Hosts
from shared_ir.service_kit.http.message import Admission, HttpRequest, HttpResponse, json_bytes, written_json
from shared_ir.service_kit.http.metrics import METRICS, MOST_BODY, Scrape, Scrapes
from shared_ir.service_kit.status import RETRY_SECONDS, internal, let_go, visible
from shared_ir.service_kit.telemetry.trace_parent import HEADER as TRACE_PARENT
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
_MODEL = r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_LARGE_BYTES = 1 << 18
_LARGE_DOCUMENT = threading.BoundedSemaphore(1)
"""Held while a document of more than so many bytes is parsed: one after the other takes the interpreter no longer than all at once, and
the memory of one."""
_RAW = Document("", (), (), BinaryOutputs(default=True), {})
"""Of a request whose body is its one input."""
_HEALTH = "/v2/health/"
_MOST_QUICK_TEXT = 4096
"""Bytes of JSON that take little time to be read."""
_MOST_KNOWN, _MOST_KNOWN_PATH = 1024, 512
"""Routes that are remembered, and characters of a path."""
_REPOSITORY = "/v2/repository/"


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may ask for what.

    Attributes:
        token: that every call must carry, health checks and metrics excepted; empty for none.
        hosts: names by which clients without a token may address the server.
        most_body: largest body of an inference, in bytes.
        control: whether models may be loaded and unloaded here at all.
        admin: whether settings of log and traces may be seen and changed here at all.
    """

    token: str = ""
    hosts: Hosts = field(default_factory=Hosts)
    most_body: int = 256 * 1024 * 1024
    control: bool = True
    admin: bool = False


class RestApplication:
    """Maps requests to the data plane. What goes wrong becomes ``{"error": ...}`` with a status."""

    def __init__(self, dataplane: DataPlane, scrape: Scrape, access: AccessRules = AccessRules()) -> None:
        self._dataplane = dataplane
        self._scrapes = Scrapes(scrape)
        self._access = access
        self._bearer = SingleToken(access.token) if access.token else None
        self._routes: Routes = (
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
            (re.compile(METRICS), {"GET": self._metrics}),
            *Extensions(dataplane, access.admin).routes(),
        )
        self._asked_often = (self._live, self._ready, self._model_ready, self._server_metadata)
        self._documents = Documents()
        self._known: dict[tuple[str, str], tuple[Handler, str, str]] = {}
        """Routes of requests that have come, by their method and path."""

    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        """Who asks, and for what, decided before a body is read."""
        if (refusal := self._stranger(request)) is not None:
            return refusal
        found = self._route(request)
        if isinstance(found, HttpResponse):
            return found
        handler, model, version = found
        if handler == self._infer:
            return self._admit_inference(request, model, version)
        admission = Admission(MOST_BODY, partial(_answer, handler, model, version))
        return replace(admission, is_quick=_always) if handler in self._asked_often else admission

    def _admit_inference(self, request: HttpRequest, model: str, version: str) -> HttpResponse | Admission:
        """NOTE: what is small comes with its head; it is read, so that its connection can go on behind a refusal."""
        size = whole_number(request.headers.get("content-length", ""))
        if size is None or size > MOST_BODY:
            try:
                self._dataplane.check_admission(model, version, request.peer)
            except IngotError as error:
                self._dataplane.refused(self._headed(request, model, version), error)
                return HttpResponse.failure(error)
        text = whole_number(request.headers.get(rest_codec.JSON_LENGTH, ""))
        return Admission(
            self._access.most_body, partial(_answer, self._infer, model, version), partial(self._is_quick, model, text)
        )

    def _is_quick(self, model: str, text: int | None, size: int) -> bool:
        """NOTE: ``text`` bytes are JSON, all of them where it is None; reading them is not counted as computing."""
        is_short = (size if text is None else text) <= _MOST_QUICK_TEXT
        return is_short and size <= MOST_MESSAGE_BYTES and self._dataplane.quick.is_quick(model, size)

    def refused(self, request: HttpRequest, error: IngotError) -> None:
        found = self._route(request)
        if not isinstance(found, HttpResponse) and found[0] == self._infer:
            self._dataplane.refused(self._headed(request, found[1], found[2]), error)

    def _stranger(self, request: HttpRequest) -> HttpResponse | None:
        if request.path.startswith(_HEALTH):
            return None
        if self._bearer is None or request.path == METRICS:
            return self._access.hosts.refusal(request)
        if self._bearer.accepts(request.headers.get(HEADER)):
            return None
        return HttpResponse.failure(unauthenticated(), HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": "Bearer"})

    def _route(self, request: HttpRequest) -> tuple[Handler, str, str] | HttpResponse:
        known = self._known.get((request.method, request.path))
        if known is not None:
            return known
        for pattern, handlers in self._routes:
            if (match := pattern.fullmatch(request.path)) is None:
                continue
            handler = handlers.get("GET" if request.method == "HEAD" else request.method)
            if handler is None:
                return _not_allowed(request, ", ".join(handlers))
            named = match.groupdict()
            found = handler, unquote(named.get("model") or ""), unquote(named.get("version") or "")
            self._remember(request, found)
            return found
        return HttpResponse.failure(IngotError(ErrorCode.NOT_FOUND, "no such path", field=request.path[:200]))

    def _remember(self, request: HttpRequest, found: tuple[Handler, str, str]) -> None:
        if len(request.path) <= _MOST_KNOWN_PATH:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[request.method, request.path] = found

    def _infer(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        try:
            document, inputs = self._content(request, model, version)
            decoded = InferRequest(
                model_name=model,
                inputs=inputs,
                model_version=version,
                id=document.id,
                outputs=document.outputs,
                parameters=document.parameters,
                deadline=deadline(document.parameters),
                cancellation=Cancellation(request.has_gone),
                peer=request.peer,
                split_key=request.headers.get(SPLIT_KEY, ""),
                hold=request.hold,
                grow=request.grow,
                size=len(request.body),
                waits=request.waits,
                origin=self._origin(request),
            )
        except IngotError as error:
            self._dataplane.refused(self._headed(request, model, version), error)
            raise
        return rest_codec.encode(self._dataplane.infer(decoded), document.binary, taking(decoded))

    def _headed(self, request: HttpRequest, model: str, version: str) -> InferRequest:
        """What is known of an inference that cannot be read."""
        return InferRequest(model, (), version, peer=request.peer, origin=self._origin(request))

    def _origin(self, request: HttpRequest) -> Origin:
        if not self._dataplane.asks_origin:
            return NOWHERE
        return Origin("http", request.headers.get(REQUEST_ID, ""), request.headers.get(TRACE_PARENT, ""))

    def _content(
        self, request: HttpRequest, model: str, version: str
    ) -> tuple[Document, tuple[TensorData | SharedTensor, ...]]:
        body, length = request.body, request.headers.get(rest_codec.JSON_LENGTH)
        if length == "0":
            expected = self._dataplane.model_metadata(model, version).signature
            return _RAW, (rest_codec.raw_tensor(model, body, expected),)
        text = rest_codec.json_part(body, length)
        rest = memoryview(body)[len(text) :]
        if (known := self._documents.known(text)) is not None:
            return known, rest_codec.tensors(known, rest)
        large = _LARGE_DOCUMENT if len(text) > _LARGE_BYTES else nullcontext()
        with request.holding(json_bytes(text)), large:
            document = self._documents.read(text)

            @functools.cache
            def written() -> Any:
                request.hold(json_bytes(text))
                return written_json(text)

            return document, rest_codec.tensors(document, rest, written)

    def _live(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return _truth({"live": self._dataplane.live()})

    def _ready(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return _truth({"ready": self._dataplane.ready()})

    def _model_ready(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return _truth({"name": model, "ready": self._dataplane.model_ready(model, version)})

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
        ready = bool(json_object(request).get("ready", False))
        return HttpResponse.json([documents.version_status(s) for s in self._dataplane.repository_index(ready)])

    def _load(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        parameters = json_object(request).get("parameters", {})
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
        self._check_control()
        self._dataplane.load(model, str(parameters.get("policy", "")))
        return HttpResponse()

    def _unload(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        self._check_control()
        self._dataplane.unload(model)
        return HttpResponse()

    def _check_control(self) -> None:
        if not self._access.control:
            raise no_control()

    def _metrics(self, request: HttpRequest, model: str, version: str) -> HttpResponse:
        return self._scrapes(request)


class PartApplication:
    """Those paths of another application that match ``paths``, which ``described`` names."""

    def __init__(self, whole: RestApplication, paths: re.Pattern[str], described: str) -> None:
        self._whole = whole
        self._paths = paths
        self._described = described

    def admit(self, request: HttpRequest) -> HttpResponse | Admission:
        return self._elsewhere(request) or self._whole.admit(request)

    def refused(self, request: HttpRequest, error: IngotError) -> None:
        self._whole.refused(request, error)

    def _elsewhere(self, request: HttpRequest) -> HttpResponse | None:
        if self._paths.fullmatch(request.path):
            return None
        return HttpResponse.failure(IngotError(ErrorCode.NOT_FOUND, f"only {self._described} are served here"))


def observed(dataplane: DataPlane, scrape: Scrape, hosts: Hosts) -> PartApplication:
    """What the port of metrics serves: them, and health checks, which have room of their own there."""
    whole = RestApplication(dataplane, scrape, AccessRules(hosts=hosts, most_body=MOST_BODY, control=False))
    return PartApplication(whole, re.compile(f"{METRICS}.*|{_HEALTH}.*"), f"{METRICS} and {_HEALTH}")


def controlled(dataplane: DataPlane, scrape: Scrape, access: AccessRules) -> PartApplication:
    """What the address for control serves: models are loaded and unloaded, settings changed, and nothing is inferred."""
    whole = RestApplication(dataplane, scrape, replace(access, most_body=MOST_BODY, control=True, admin=True))
    paths = re.compile(f"{_REPOSITORY}.*|{_HEALTH}.*|{ADMIN.pattern}")
    return PartApplication(whole, paths, f"{_REPOSITORY}, {_HEALTH}, /v2/logging and trace settings")


def _answer(handler: Handler, model: str, version: str, request: HttpRequest) -> HttpResponse:
    try:
        return handler(request, model, version)
    except IngotError as error:
        let_go(error)
        return HttpResponse.failure(error)
    except WouldWait:
        raise
    except Exception as error:
        _LOG.exception("%s %s failed", request.method, visible(request.path, 200))
        let_go(error)
        return HttpResponse.failure(internal(error))


def _always(size: int) -> bool:
    return True


def _not_allowed(request: HttpRequest, allowed: str) -> HttpResponse:
    error = IngotError(
        ErrorCode.INVALID_ARGUMENT, "the method is not allowed here", expected=allowed, received=request.method[:32]
    )
    return HttpResponse.failure(error, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": allowed})


def _truth(document: dict[str, object]) -> HttpResponse:
    """200 or 503. The protocol says it by the status; KServe's client reads the document, which all of them may have."""
    if False not in document.values():
        return HttpResponse.json(document)
    return HttpResponse.json(document, HTTPStatus.SERVICE_UNAVAILABLE, **{"Retry-After": str(RETRY_SECONDS)})
