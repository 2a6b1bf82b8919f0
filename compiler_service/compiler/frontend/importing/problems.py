"""What happens when a node cannot be imported: stop, or note it and go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from compiler_service.compiler.frontend.importing.node import SourceNode
from shared_ir.errors import IngotError


class Problems(Protocol):
    """Where the importer sends the error of a node. Returning means: go on, with unknown outputs."""

    def report(self, error: IngotError, node: SourceNode) -> None: ...


class StopAtFirst:
    """The policy of compilation."""

    def report(self, error: IngotError, node: SourceNode) -> None:
        raise error


@dataclass
class CollectAll:
    """The policy of a check."""

    found: list[tuple[IngotError, SourceNode]] = field(default_factory=list)

    def report(self, error: IngotError, node: SourceNode) -> None:
        self.found.append((error, node))
