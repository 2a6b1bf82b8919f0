"""The `ingot` command: one subcommand for each thing that people do."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ingot.cli import compile, infer, inspect, jobs, models, tokens, trust, up
from ingot.cli.output import INTERRUPTED, USAGE_ERROR, Output
from shared_ir.errors import IngotError
from shared_ir.service_kit.settings import OURS, refuse_unknown
from shared_ir.signals import ended_by_sigterm
from shared_ir.versions import VERSION

_EXIT_STATUS = "Exit status: 0 done, 1 your input is at fault, 2 wrong usage, 3 the service is at fault or away."


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ingot", description="Compile ONNX models to native code and serve them.", epilog=_EXIT_STATUS
    )
    parser.add_argument("--version", action="version", version=f"ingot {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (up, compile, models, trust, tokens, jobs, infer, inspect):
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of the command."""
    given = make_parser().parse_args(arguments)  # exits with USAGE_ERROR by itself
    output = Output(given.json)
    try:
        _refuse_unknown_variables()
        with ended_by_sigterm():
            return int(given.run(given, output))
    except IngotError as error:
        return output.error(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader left: `ingot jobs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE_ERROR


def _refuse_unknown_variables() -> None:
    """A command hands its environment on to services that it starts; and without its certificate it would speak in the clear."""
    try:
        from compiler_service.settings import variables as compiler
        from runtime_service.settings import variables as runtime
    except ImportError:  # a system that services do not run on
        return
    refuse_unknown(os.environ, OURS, (*compiler(), *runtime()))


if __name__ == "__main__":
    sys.exit(main())
