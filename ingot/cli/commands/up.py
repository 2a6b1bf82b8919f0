"""``ingot up``: every service on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from ingot.cli.arguments import add_common
from ingot.cli.output import SUCCESS, Output
from ingot.cli.values import whole
from ingot.embedded.installation import running
from ingot.embedded.ports import Ports
from ingot.home import home_directory
from ingot.sources import compiler

_LOOK_SECONDS = 0.25
"""Seconds between two looks at the services."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("up", help="start all services on this machine", description=__doc__)
    usual, port = "the usual one if free", whole(0, 65535)
    parser.add_argument("--compiler-port", type=port, help=f"gRPC of the compiler service (default: {usual}; 0: any)")
    parser.add_argument("--grpc-port", type=port, help=f"gRPC of the runtime service (default: {usual}; 0: any)")
    parser.add_argument("--http-port", type=port, help=f"HTTP of the runtime service (default: {usual}; 0: any)")
    parser.add_argument("--free-ports", action="store_true", help="a free port for every other server")
    parser.add_argument("--models", help="what to serve (default: INGOT_RUNTIME_MODELS, or *@stable)")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, output: Output) -> int:
    home = home_directory(arguments.home)
    given = {name: getattr(arguments, f"{name}_port") for name in ("compiler", "grpc", "http")}
    ports = Ports.free() if arguments.free_ports else Ports()
    ports = replace(ports, **{name: port for name, port in given.items() if port is not None})
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set() or not started.is_set():
            raise KeyboardInterrupt  # a second one, or one while things start: leave at once, taking everything down
        stop.set()

    started = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    with compiler():
        from compiler_service.boundary.state import standing as boundary
    with running(home, ports, arguments.models, output.note) as installation:
        started.set()
        addresses = installation.addresses
        output.line({"home": home} | {name: getattr(addresses, name) for name in addresses.__dataclass_fields__})
        rows = [
            ("compiler service", "gRPC", addresses.compiler),
            ("", "metrics", f"http://{addresses.compiler_metrics}/metrics"),
            ("runtime service", "gRPC", addresses.grpc),
            ("", "HTTP", f"http://{addresses.http}"),
            ("", "metrics", f"http://{addresses.metrics}/metrics"),
            ("files", "", str(home)),
            ("signing key", "", _signing_key(home)),
        ]
        output.table(("service", "", "address"), rows)
        output.note(f"Boundary around compilations: {boundary()}.")
        output.note("Ctrl-C stops everything.")
        while not stop.wait(_LOOK_SECONDS):
            installation.check()
    return SUCCESS


def _signing_key(home: Path) -> str:
    """Fingerprint of the key that models made here are signed with: what others compare before they trust it."""
    from shared_ir.artifact.signature import SIGNING_KEY_FILE, SigningKey, fingerprint

    given = os.environ.get("INGOT_SIGNING_KEY")
    return fingerprint(SigningKey.load(Path(given) if given else home / SIGNING_KEY_FILE).public)
