"""The settings of both services, for tests of what they have in common."""

from __future__ import annotations

from typing import Any

from compiler_service import settings as compiler
from runtime_service import settings as runtime


def settings_of(module: Any) -> Any:
    """The class of settings in ``module``, which is one of the two."""
    return {compiler: compiler.CompilerSettings, runtime: runtime.RuntimeSettings}[module]
