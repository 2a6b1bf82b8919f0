"""How methods of gRPC answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import grpc

from runtime_service.batching.messages import REQUEST_ID, SPLIT_KEY, Origin
from shared_ir.errors import IngotError
from shared_ir.service_kit.status import abort, internal
from shared_ir.service_kit.telemetry.trace_parent import HEADER as TRACE_PARENT
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
Context = grpc.ServicerContext
T = TypeVar("T")


def origin_of(context: Context) -> Origin:
    """What the head of a call says of where it comes from."""
    found = {key: text for key, text in context.invocation_metadata() or () if isinstance(text, str)}
    return Origin("grpc", found.get(REQUEST_ID, ""), found.get(TRACE_PARENT, ""))


def split_key_of(context: Context) -> str:
    """The key that the head of a call has, for models that are shared by weight."""
    found = (text for key, text in context.invocation_metadata() or () if key == SPLIT_KEY)
    return str(next(found, ""))


def answer(context: Context, call: Callable[[], T]) -> T:
    """The result of ``call``, or its error as a status. Nothing but a bug of ours becomes INTERNAL."""
    try:
        return call()
    except WouldWait:
        raise
    except IngotError as error:
        abort(context, error)
    except Exception as error:
        _LOG.exception("a call failed")
        abort(context, internal(error))
