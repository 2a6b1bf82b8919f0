"""A model that is graph IR already, in place of one in a file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shared_ir.digest import sha256_hex
from shared_ir.graph.ir import Module
from shared_ir.graph.text import print_module


@dataclass(frozen=True, eq=False)
class ModuleSource:
    """``module`` is verified, and calls no functions."""

    module: Module

    def sha256(self) -> str:
        """Hexadecimal digest of its text, in which large arrays stand as theirs."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return sha256_hex(print_module(self.module).encode())
