"""A server over toy models: ``python -m tests.runtime_service.toy_process FOLDER``, settings from the environment, also those for several
processes.

``FOLDER/hold`` makes inferences block as long as it exists, ``FOLDER/loading`` loads.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from runtime_service.arrays import Array
from runtime_service.processes.parent import Parent, most_seconds_to_stop
from runtime_service.processes.told import Told
from runtime_service.server import RuntimeServer, serve
from runtime_service.settings import RuntimeSettings
from shared_ir.service_kit.telemetry.log import start_log
from shared_ir.service_kit.telemetry.tracing import start_tracing
from tests.runtime_service.toy_models import ToyModel, ToySource, scale_model


def main(folder: Path, channel: int | None = None) -> None:
    """``channel``: of one of several processes, from which it is told the rest."""
    start_log("runtime")
    start_tracing("runtime")

    def make() -> ToyModel:
        while (folder / "loading").exists():
            (folder / "loads").touch()
            time.sleep(0.01)
        model = scale_model()

        def function(inputs: Mapping[str, Array]) -> dict[str, Array]:
            while (folder / "hold").exists():
                (folder / "held").touch()
                time.sleep(0.01)
            return {"y": inputs["x"] * 2}

        model.function = function
        return model

    source = ToySource()
    for name in ("scale", "second"):
        source.publish(name, 1, make, "stable")
    settings = RuntimeSettings.from_environment(os.environ)
    if channel is not None:
        told = Told.receive(channel)
        server = RuntimeServer(told.settings(settings), source, told)
        told.end_with_parent(most_seconds_to_stop(settings))
        serve(server)
    elif settings.processes > 1:
        sys.exit(Parent(settings, [sys.executable, "-m", "tests.runtime_service.toy_process", str(folder)]).run())
    else:
        serve(RuntimeServer(settings, source))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else None)
