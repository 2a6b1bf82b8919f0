#!/usr/bin/env python
"""Health checks of the images. Exit status 0 is healthy; otherwise one sentence says why not.

ingot-health grpc HOST:PORT [SERVICE]     asks grpc.health.v1
ingot-health file PATH SECONDS            PATH must have been touched in the last SECONDS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path


def check_grpc(address: str, service: str = "") -> str:
    """Why the service is not SERVING; empty when it is."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    port = address.rpartition(":")[2]
    if not (
        port.isascii() and port.isdecimal() and 0 < int(port[:9]) < 65536
    ):  # gRPC takes it, and asks at another port
        return f"{address} is not host:port"
    request = health_pb2.HealthCheckRequest(service=service)
    with grpc.insecure_channel(address) as channel:
        try:
            status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=3).status
        except grpc.RpcError as error:
            return f"{address} does not answer: {error.code().name}"
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    return "" if name == "SERVING" else f"{address} is {name}"


def check_file(path: str, seconds: str) -> str:
    """Why the file is not fresh; empty when it is."""
    try:
        age = time.time() - Path(path).stat().st_mtime
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if age <= float(seconds) else f"{path} was touched {age:.0f} s ago, allowed are {seconds} s"


def main(arguments: list[str]) -> int:
    checks: dict[str, tuple[Callable[..., str], tuple[int, ...]]]
    checks = {"grpc": (check_grpc, (1, 2)), "file": (check_file, (2,))}
    check, counts = checks.get(arguments[0] if arguments else "", (None, ()))
    if check is None or len(arguments) - 1 not in counts:
        print(__doc__, file=sys.stderr)
        return 2
    reason = check(*arguments[1:])
    if reason:
        print(reason, file=sys.stderr)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
