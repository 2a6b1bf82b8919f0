"""Where a Python inside the boundary finds packages of source trees, which it may not list: run at its start, by its name.

``BOUNDARY_PACKAGES`` says which file each is loaded from (:mod:`compiler_service.boundary.imports`). Another module of this
name that the path leads to runs afterwards, as it would have without this one.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from types import ModuleType


class NamedPackages:
    """Finds packages and modules by name, without looking into the folder that they lie in."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = self._places.get(name)
        return spec_from_file_location(name, place) if place else None


def begin() -> None:
    finder = NamedPackages(json.loads(os.environ.get("BOUNDARY_PACKAGES", "{}")))
    sys.meta_path.insert(sys.meta_path.index(PathFinder), finder)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder != here]
    own = sys.modules.pop(__name__)
    with contextlib.suppress(ImportError):
        __import__(__name__)
    sys.modules.setdefault(__name__, own)


if __name__ == "sitecustomize":
    begin()
