"""Options that several commands have, and how their values are read."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ingot.cli.usage import Parser
from ingot.cli.values import checked, once, shape
from ingot.client import Client
from ingot.endpoint import Endpoint
from ingot.home import Addresses, home_directory
from ingot.server_address import server_address
from shared_ir.service_kit.access.secret_files import with_secret_files

_TOKEN = "INGOT_TOKEN"


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("--home", type=Path, help="folder of the installation (default: INGOT_HOME or ~/.ingot)")


def add_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        type=checked(server_address),
        help="host:port of the service (default: where `ingot up` started it)",
    )
    add_credentials(parser)


def add_credentials(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--token", help="bearer token (default: INGOT_TOKEN, or what the file INGOT_TOKEN_FILE holds)")
    parser.add_argument("--ca-certificate", type=Path, help="PEM file, turns TLS on (default: INGOT_CA_CERTIFICATE)")
    parser.add_argument(
        "--client-certificate", type=Path, help="PEM file to show the service (default: INGOT_CLIENT_CERTIFICATE)"
    )
    parser.add_argument("--client-key", type=Path, help="its key (default: INGOT_CLIENT_KEY)")


def _options(add: Callable[[argparse.ArgumentParser], None]) -> str:
    parser = Parser(add_help=False)
    add(parser)
    return " ".join(action.dest for action in parser._actions)


SERVICE = f"home {_options(add_service)}"
"""What ways of using a command that asks a service have in common."""


def make_client(arguments: argparse.Namespace) -> Client:
    address = arguments.address or Addresses.find(home_directory(arguments.home)).compiler
    return Client(address, **credentials(arguments))


def is_named(arguments: argparse.Namespace) -> bool:
    """Whether somebody said where the service is; else it is looked for where `ingot up` starts it."""
    return bool(arguments.address or os.environ.get("INGOT_COMPILER_ADDRESS"))


def make_endpoint(arguments: argparse.Namespace) -> Endpoint:
    addresses = Addresses.find(home_directory(arguments.home))
    address = arguments.address or (addresses.http if arguments.http else addresses.grpc)
    protocol: Literal["grpc", "http"] = "http" if arguments.http else "grpc"
    return Endpoint(address, protocol, **credentials(arguments))


def credentials(arguments: argparse.Namespace) -> dict[str, Any]:
    """By which the command makes itself known, and knows the service: its options, else the environment.

    Raises:
        IngotError: INVALID_ARGUMENT, the file of the token cannot be read.
    """
    token = arguments.token
    if token is None:
        token = with_secret_files(os.environ, (_TOKEN,)).get(_TOKEN, "")
    names = ("ca_certificate", "client_certificate", "client_key")
    files = {name: getattr(arguments, name) or os.environ.get(f"INGOT_{name.upper()}") or None for name in names}
    return {"token": token, **files}


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        action="append",
        type=shape,
        default=[],
        metavar="INPUT=1,3,h,w",
        help="dims of an input: a number pins one, a name makes it that symbol, ? leaves it; may be repeated",
    )
    parser.add_argument("--opt-level", type=int, default=3, choices=(0, 1, 2, 3), help="default 3")


def add_in_process(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="here, read the model in this process instead of in a child that can neither write nor send anything",
    )


def model_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of a compilation.

    Raises:
        UsageError: two shapes of one input.
    """
    shapes = {name: list(dims) for name, dims in once("--shape", arguments.shape).items()}
    return {"opt_level": arguments.opt_level, **({"shapes": shapes} if shapes else {})}
