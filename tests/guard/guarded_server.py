"""``python -m tests.guard.guarded_server``: the runtime service, inputs and outputs between guard pages, outputs full of poison."""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Mapping

import numpy as np

from runtime_service import server
from runtime_service.arrays import Array
from runtime_service.executors import signature
from runtime_service.executors.stop import Stop
from runtime_service.loading.model import Model
from tests.guard.arrays import empty, guarded

_run = Model.run


def _guarded_run(self: Model, inputs: Mapping[str, Array], /, stop: Stop | None = None) -> dict[str, Array]:
    return _run(self, {name: guarded(np.asarray(array)) for name, array in inputs.items()}, stop)


if __name__ == "__main__":
    faulthandler.disable()  # what it dies of is told by its status
    signature._empty = empty
    Model.run = _guarded_run  # type: ignore[method-assign]  # inputs between guards too
    sys.exit(server.main())
