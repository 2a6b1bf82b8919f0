"""How methods of gRPC answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import grpc

from shared_ir.errors import IngotError
from shared_ir.service_kit.status import abort, internal
from shared_ir.service_kit.waiting import WouldWait

_LOG = logging.getLogger(__name__)
Context = grpc.ServicerContext
T = TypeVar("T")


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
