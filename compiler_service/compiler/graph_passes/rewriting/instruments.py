"""What one may want to happen around every pass: verify, time, dump. Given to a :class:`PassContext`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shared_ir.errors import IngotError
from shared_ir.graph.ir import Graph
from shared_ir.graph.text import print_graph
from shared_ir.graph.verify import NodeCheck, verify


@dataclass
class Verify:
    """Checks the graph before the first pass and after every pass."""

    check_node: NodeCheck | None = None
    started: bool = False

    def before(self, index: int, name: str, graph: Graph) -> None:
        if not self.started:
            self.started = True
            self._verify(graph, f"before pass {name!r}")

    def after(self, index: int, name: str, graph: Graph, seconds: float) -> None:
        self._verify(graph, f"after pass {name!r}")

    def _verify(self, graph: Graph, when: str) -> None:
        try:
            verify(graph, self.check_node)
        except IngotError as error:
            error.message = f"{when}: {error.message}"
            raise


@dataclass
class Time:
    """Collects (pass name, seconds) in ``seconds``."""

    seconds: list[tuple[str, float]] = field(default_factory=list)

    def before(self, index: int, name: str, graph: Graph) -> None:
        pass

    def after(self, index: int, name: str, graph: Graph, seconds: float) -> None:
        self.seconds.append((name, seconds))


@dataclass
class Dump:
    """Writes ``00_input.txt`` and then one file per pass, ``03_fuse.txt``, into ``directory``."""

    directory: Path
    started: bool = False

    def before(self, index: int, name: str, graph: Graph) -> None:
        if not self.started:
            self.started = True
            self.directory.mkdir(parents=True, exist_ok=True)
            self._write(0, "input", graph)

    def after(self, index: int, name: str, graph: Graph, seconds: float) -> None:
        self._write(index, name, graph)

    def _write(self, index: int, name: str, graph: Graph) -> None:
        (self.directory / f"{index:02}_{name}.txt").write_text(print_graph(graph))


@dataclass
class PrintBetween:
    """Hands the text of the graph to ``write`` after every pass that changed it."""

    write: Callable[[str], object]
    previous: Graph | None = None

    def before(self, index: int, name: str, graph: Graph) -> None:
        self.previous = graph

    def after(self, index: int, name: str, graph: Graph, seconds: float) -> None:
        changed = self.previous is not graph
        self.write(f"# {index:02} {name}" + ("" if changed else ": nothing changed") + "\n")
        if changed:
            self.write(print_graph(graph))
