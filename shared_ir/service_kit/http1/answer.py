"""How a request that has come is answered, and what an answer looks like on its way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus

from shared_ir.errors import IngotError
from shared_ir.service_kit.http.message import Admission, Application, HttpRequest, HttpResponse
from shared_ir.service_kit.http1.arriving import Whole
from shared_ir.service_kit.http1.body import coding_of, unpacked
from shared_ir.service_kit.http1.head import Http1Head, HttpRefusal
from shared_ir.service_kit.memory.room import Guest
from shared_ir.service_kit.status import http_status, internal, let_go
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
_STARTS = {status: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def answered(
    whole: Whole, application: Application, guest: Guest, peer: str, has_gone: Callable[[], bool]
) -> tuple[HttpResponse, bool]:
    """The answer to a request that was admitted, and whether another request may follow it.

    Raises:
        WouldWait: ``guest`` does not wait, and would have to.
    """
    head, admission = whole.head, whole.admission
    assert admission is not None
    try:
        body = _unpacked(whole, admission, guest, has_gone)
    except (HttpRefusal, IngotError) as failure:
        error, status = _told(failure)
        let_go(failure)
        application.refused(HttpRequest(head.method, head.path, head.fields, peer=peer), error)
        return HttpResponse.failure(error, status), False
    request = HttpRequest(
        head.method, head.path, head.fields, body, has_gone, guest.holding, peer, guest.grow, guest.take, guest.waits
    )
    try:
        response = admission.answer(request)
        guest.settle(sum(map(len, response.parts)))
    except WouldWait:
        raise
    except IngotError as error:
        response = HttpResponse.failure(error)
        let_go(error)
    except Exception as error:
        _LOG.exception("an application failed")
        response = HttpResponse.failure(internal(error))
        let_go(error)
    return response, whole.keeps


def is_quick(whole: Whole) -> bool:
    """Whether a request that was admitted may be answered by the thread that reads all connections."""
    if "content-encoding" in whole.head.fields or whole.admission is None:
        return False
    try:
        return whole.admission.is_quick(len(whole.body))
    except Exception:
        _LOG.exception("an application failed")
        return False


def _unpacked(
    whole: Whole, admission: Admission, guest: Guest, has_gone: Callable[[], bool]
) -> bytes | bytearray | memoryview:
    coding = coding_of(whole.head)
    return whole.body if coding == "identity" else unpacked(whole.body, coding, admission.most_body, guest, has_gone)


def _told(failure: HttpRefusal | IngotError) -> tuple[IngotError, HTTPStatus]:
    return (failure.error, failure.status) if isinstance(failure, HttpRefusal) else (failure, http_status(failure))


def start_of(response: HttpResponse, length: int, head: Http1Head | None, keeps: bool) -> bytes:
    """The first lines of an answer of ``length`` bytes to the request of ``head``, behind which the connection is closed or ``keeps``."""
    text = _STARTS[response.status]
    for name, value in response.headers.items():
        text += f"{name}: {value}\r\n"
    if not keeps and "Connection" not in response.headers:
        text += "Connection: close\r\n"
    if keeps and head is not None and head.is_old:
        text += "Connection: keep-alive\r\n"
    return f"{text}Content-Length: {length}\r\n\r\n".encode("latin-1", "replace")
