"""Handlers of gRPC methods, as interceptors change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc


def with_behaviour(handler: Any, behaviour: Callable[..., Any]) -> Any:
    """``handler`` with another function in it, its serialisers kept."""
    kind = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return kind(behaviour, handler.request_deserializer, handler.response_serializer)
