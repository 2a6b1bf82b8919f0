"""A real API server process around the toy compiler: ``python toy_server.py READY_FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

from compiler_service.server import serve
from compiler_service.settings import CompilerSettings
from compiler_service.worker.app import CeleryQueue, make_app
from shared_ir.service_kit.telemetry.log import start_log
from shared_ir.service_kit.telemetry.tracing import start_tracing
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

if __name__ == "__main__":
    start_log("compiler-api", is_whole=True)
    start_tracing("compiler-api")
    settings = CompilerSettings.from_environment()
    queue = CeleryQueue(make_app(settings))
    sys.exit(serve(settings, ToyCompiler(), queue, Path(sys.argv[1]), STAGE_COMMAND))
