"""Published models that tests use where they were downloaded before: ``python -m tests.e2e.published_models`` does that."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingot.demo.models import PP_OCR, PublishedModels
from shared_ir.errors import IngotError

SILERO_VAD = PublishedModels(
    "silero-vad==6.2.3",
    "silero_vad/data",
    {
        "silero_vad.onnx": "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        "silero_vad_16k_op15.onnx": "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        "silero_vad_16k_sequence.onnx": "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        "silero_vad_half.onnx": "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
        "silero_vad_op18_ifless.onnx": "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        "silero_vad_openvino_16k.onnx": "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
    },
)
"""Voice activity detectors, recurrent: the state goes in and comes out with every call."""


def cached_or_skip(models: PublishedModels, name: str) -> Path:
    found = models.cached(name)
    if found is None:
        pytest.skip(f"{name} is not in the cache: `python -m tests.e2e.published_models` downloads it")
    return found


if __name__ == "__main__":
    failed = False
    for published in (PP_OCR, SILERO_VAD):
        try:
            print(*published.fetch().values(), sep="\n")
        except IngotError as error:
            print(f"ingot: {error}", file=sys.stderr)
            failed = True
    sys.exit(failed)
