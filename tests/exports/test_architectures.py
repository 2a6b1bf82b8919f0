"""Architectures of transformers, timm and torchvision with random weights, exported and compiled once, run at two sizes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `exports`: make exports")
pytest.importorskip("torchvision", reason="needs the extra `exports`: make exports")
pytest.importorskip("timm", reason="needs the extra `exports`: make exports")
pytest.importorskip("transformers", reason="needs the extra `exports`: make exports")
pytest.importorskip("onnxscript", reason="needs the extra `exports`: make exports")

from tests.exports.architectures import ARCHITECTURES
from tests.exports.beside import check
from tests.exports.torch_export import EXPORTERS, Exported, export


def _either_exporter() -> list[object]:
    """The exporters take turns, so that both meet architectures of every kind."""
    pairs = [(s, s.exporter or EXPORTERS[i % 2]) for i, s in enumerate(ARCHITECTURES)]
    return [pytest.param(s, exporter, id=f"{s.name}-{exporter}") for s, exporter in pairs]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("subject", "exporter"), _either_exporter())
def test_agrees_with_onnx_runtime(subject: Exported, exporter: str) -> None:
    check(export(subject, exporter), subject.runs(), levels=(3,))


def test_there_are_about_a_hundred() -> None:
    assert len(ARCHITECTURES) >= 100
    assert len({s.name for s in ARCHITECTURES}) == len(ARCHITECTURES)
