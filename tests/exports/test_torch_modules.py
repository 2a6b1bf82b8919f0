"""Small modules of torch, through both of its exporters, at two sizes of each."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `exports`: make exports")
pytest.importorskip("onnxscript", reason="needs the extra `exports`: make exports")

from tests.exports.beside import check
from tests.exports.torch_export import EXPORTERS, Exported, export
from tests.exports.torch_modules import MODULES

PAIRS = [(s, exporter) for s in MODULES for exporter in EXPORTERS if s.exporter in ("", exporter)]


@pytest.mark.slow
@pytest.mark.parametrize(("subject", "exporter"), [pytest.param(*p, id=f"{p[0].name}-{p[1]}") for p in PAIRS])
def test_agrees_with_onnx_runtime(subject: Exported, exporter: str) -> None:
    check(export(subject, exporter), subject.runs())
