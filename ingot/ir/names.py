"""How operators are called in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.tensor_expr.registry import OPERATORS

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def function_name(operator: str) -> str:
    """``BatchNormalization``: ``batch_normalization``."""
    return _WORDS.sub("_", operator).lower()


FUNCTION_NAMES: Mapping[str, str] = MappingProxyType(
    {function_name(name): name for name in OPERATORS if "." not in name}
)
"""Name in Python -> name of the operator."""
