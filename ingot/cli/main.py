"""The `ingot` command: one subcommand for each thing that people do."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache

from ingot.cli.commands import (
    compile,
    device,
    infer,
    inspect,
    jobs,
    models,
    records,
    registry,
    tokens,
    top,
    trust,
    tune,
    up,
)
from ingot.cli.output import INTERRUPTED, USAGE_ERROR, Output
from ingot.cli.usage import Parser, parse
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.service_kit.settings import OURS, refuse_unknown
from shared_ir.signals import ended_by_sigterm
from shared_ir.storage.faults import file_error
from shared_ir.usage import UsageError
from shared_ir.versions import VERSION

_EXIT_STATUS = "Exit status: 0 done, 1 your input is at fault, 2 wrong usage, 3 the service is at fault or away."


@cache
def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="ingot", description="Compile ONNX models to native code and serve them.", epilog=_EXIT_STATUS)
    parser.add_argument("--version", action="version", version=f"ingot {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (up, compile, tune, records, models, registry, trust, tokens, jobs, top, infer, inspect, device):
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of the command. Raises SystemExit for wrong usage, ``--help`` and ``--version``."""
    texts = sys.argv[1:] if arguments is None else list(arguments)
    output = Output("--json" in texts)
    try:
        return _run(texts, output)
    except UsageError as error:
        output.error(error)
        raise SystemExit(USAGE_ERROR) from error
    except IngotError as error:
        return output.error(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader left: `ingot jobs | head`
        _give_up_output()
        return USAGE_ERROR
    except OSError as error:
        _give_up_output()
        return output.error(file_error(error))
    except Exception as error:
        return output.error(_fault(error))


def _run(texts: Sequence[str], output: Output) -> int:
    given = parse(make_parser(), texts)
    _refuse_unknown_variables()
    if "way" in given:
        given.way(given).require(given)
    with ended_by_sigterm():
        status = int(given.run(given, output))
    sys.stdout.flush()  # here, where it is said that the disk is full
    return status


def _give_up_output() -> None:
    """Nothing that is left to write may fail a second time, when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fault(error: Exception) -> IngotError:
    if os.environ.get("DEBUG"):
        traceback.print_exception(error)
    message = f"the command failed: {type(error).__name__}: {error}"[:500]
    remedy = "This is a fault of ingot. DEBUG=1 shows where it happened: report it with that."
    return IngotError(ErrorCode.INTERNAL, message, remedy=remedy)


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
