"""A real worker process (Celery, Redis, subprocess per stage) around the toy compiler: ``python toy_worker.py``."""

from __future__ import annotations

import sys

from compiler_service.settings import CompilerSettings
from compiler_service.worker.run import run_worker
from shared_ir.service_kit.telemetry.log import start_log
from shared_ir.service_kit.telemetry.tracing import start_tracing
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

if __name__ == "__main__":
    start_log("compiler-worker", is_whole=True)
    start_tracing("compiler-worker")
    sys.exit(run_worker(CompilerSettings.from_environment(), ToyCompiler(), STAGE_COMMAND))
