"""``python -m compiler_service.worker``: a worker with the settings of the environment."""

from __future__ import annotations

import argparse
import sys

from compiler_service.catalogue import PipelineCompiler
from compiler_service.settings import CompilerSettings
from compiler_service.worker.run import run_worker
from shared_ir.errors import IngotError
from shared_ir.service_kit.telemetry.log import say_why_not, start_log
from shared_ir.service_kit.telemetry.tracing import start_tracing

if __name__ == "__main__":
    argparse.ArgumentParser(
        prog="python -m compiler_service.worker",
        description="A worker of the compiler. Settings are INGOT_* environment variables (compiler_service/settings.py).",
    ).parse_args()
    try:
        start_log("compiler-worker", is_whole=True)
        start_tracing("compiler-worker")
        sys.exit(run_worker(CompilerSettings.from_environment(), PipelineCompiler()))
    except IngotError as error:
        say_why_not(error)
        sys.exit(1)
