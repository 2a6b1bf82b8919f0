"""Small modules of torch, through both of its exporters, at two sizes of each."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `exports`: make exports")
pytest.importorskip("onnxscript", reason="needs the extra `exports`: make exports")

from tests.exports.beside import check
from tests.exports.torch_export import EXPORTERS, Exported, export
from tests.exports.torch_modules import MODULES


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("subject", MODULES, ids=lambda s: s.name)
def test_agrees_with_onnx_runtime(subject: Exported, exporter: str) -> None:
    check(export(subject, exporter), subject.runs())
