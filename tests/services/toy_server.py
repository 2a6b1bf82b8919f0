"""A real API server process around the toy compiler: ``python toy_server.py READY_FILE``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from compiler_service.server import serve
from compiler_service.settings import Settings
from compiler_service.worker.app import CeleryQueue, make_app
from tests.services.toy_compiler import STAGE_COMMAND, ToyCompiler

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    settings = Settings.from_environment()
    queue = CeleryQueue(make_app(settings))
    sys.exit(serve(settings, ToyCompiler(), queue, Path(sys.argv[1]), STAGE_COMMAND))
