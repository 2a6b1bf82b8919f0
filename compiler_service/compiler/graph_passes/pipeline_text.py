"""Pipelines from text: ``fold-shapes,fuse{prologues=true,most_nodes=8}``, which is what ``str`` of one gives."""

from __future__ import annotations

from compiler_service.compiler.graph_passes.pipelines import PASSES
from compiler_service.compiler.graph_passes.rewriting.option_text import OptionReader
from compiler_service.compiler.graph_passes.rewriting.pass_manager import Pass, Pipeline


def parse_pipeline(text: str) -> Pipeline:
    """The pipeline of the passes in ``text``.

    Raises:
        IngotError: INVALID_ARGUMENT for an unknown pass, an unknown option, a value that the option does not take, or an order
            that the passes do not admit.
    """
    reader = OptionReader(text)
    passes: list[Pass] = []
    while not reader.is_done():
        if passes:
            reader.where = passes[-1].name
            reader.take(",")
        name = reader.name("name or name{option=value}, separated by commas")
        if name not in PASSES:
            reader.fail("there is no such pass", ", ".join(PASSES), name)
        passes.append(PASSES[name](**reader.options(PASSES[name], name)))
    return Pipeline(tuple(passes))
