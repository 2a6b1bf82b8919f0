"""Cases of onnx that do not pass, and why. Any other outcome than this table's is an error, a case that passes after all too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NOISE = "the expected values are the numbers that numpy drew; the standard leaves the generator open"
_IMAGES = (
    "decoding compressed images takes a library of codecs, which a runtime should not carry; decode before inference"
)
_ZEROS = "expects at exact zeros the rounding noise of numpy's float32 transform, 1.9e-7, with a tolerance of 1e-7"
_TRAINING = "gradients: only models for inference are compiled"

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        **{f"test_bernoulli{suffix}": _NOISE for suffix in ("", "_double", "_seed")},
        **{f"test_bernoulli{suffix}_expanded": _NOISE for suffix in ("", "_double", "_seed")},
        **{f"test_training_dropout{suffix}": _NOISE for suffix in ("", "_mask", "_default", "_default_mask")},
        **{
            f"test_image_decoder_decode_{kind}_rgb": _IMAGES for kind in ("bmp", "jpeg2k", "jpeg", "png", "pnm", "tiff")
        },
        **{f"test_image_decoder_decode_{kind}": _IMAGES for kind in ("jpeg_bgr", "jpeg_grayscale", "webp_rgb")},
        **{f"test_dft_inverse{suffix}": _ZEROS for suffix in ("", "_opset19")},
        **{f"test_gradient_of_{name}": _TRAINING for name in ("add", "add_and_mul")},
        "test_loop16_seq_none": "onnx's own comparison has no length for the scalar in the expected sequence",
    }
)
"""Name of the case -> reason."""
