"""The models of the demo: published ones, downloaded into a cache, never part of the repository.

``python -m ingot.demo.models`` downloads the classifier and prints where it is.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import onnx.backend.test

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.files import write_atomically

CLASSIFIER = "ch_ppocr_mobile_v2.0_cls_infer.onnx"
_WHEEL = "rapidocr-onnxruntime==1.4.4"
_MEMBER = f"rapidocr_onnxruntime/models/{CLASSIFIER}"
_SHA256 = "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingot" / "models"


def cached_classifier() -> Path | None:
    """The classifier if it was downloaded before."""
    path = cache_directory() / CLASSIFIER
    return path if path.is_file() and _digest(path.read_bytes()) == _SHA256 else None


def fetch_classifier() -> Path:
    """PP-OCRv4's text-direction classifier with its published weights; batch, height and width are dynamic.

    Raises:
        IngotError: UNAVAILABLE, the download failed; CHECKSUM_MISMATCH.
    """
    known = cached_classifier()
    if known is not None:
        return known
    with tempfile.TemporaryDirectory(prefix="ingot-demo-") as name:
        data = _download(Path(name))
    if _digest(data) != _SHA256:
        raise IngotError(
            ErrorCode.CHECKSUM_MISMATCH,
            f"{CLASSIFIER} is not the published one",
            expected=_SHA256,
            received=_digest(data),
        )
    path = cache_directory() / CLASSIFIER
    write_atomically(path, data)
    return path


def resnet50() -> Path:
    """ResNet-50 of the ``onnx`` package: the real graph, weights filled with a constant."""
    return Path(onnx.backend.test.__file__).parent / "data" / "light" / "light_resnet50.onnx"


def _download(directory: Path) -> bytes:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    command += ["--ignore-requires-python", "--disable-pip-version-check", "-d", str(directory), _WHEEL]
    done = subprocess.run(command, capture_output=True, text=True)
    wheel = next(directory.glob("*.whl"), None)
    if wheel is None:
        lines = done.stderr.strip().splitlines()
        raise IngotError(
            ErrorCode.UNAVAILABLE,
            f"cannot download {_WHEEL}: {lines[-1] if lines else 'pip said nothing'}",
            remedy=f"Give this machine access to PyPI, or copy {CLASSIFIER} into {cache_directory()}.",
        )
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(_MEMBER)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    try:
        print(fetch_classifier())
    except IngotError as error:
        print(f"ingot: {error}", file=sys.stderr)
        sys.exit(1)
