"""How operators are called in Python."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from types import MappingProxyType

from compiler_service.compiler.tensor_expr.registry import OPERATORS

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def function_name(operator: str) -> str:
    """``BatchNormalization``: ``batch_normalization``; ``IsNaN``: ``is_nan``; what is a word of Python has an underscore: ``and_``."""
    name = _WORDS.sub("_", operator.replace("NaN", "Nan")).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


FUNCTION_NAMES: Mapping[str, str] = MappingProxyType(
    {function_name(name): name for name in OPERATORS if "." not in name}
)
"""Name in Python -> name of the operator."""
