"""Generate the stubs of ``shared_ir/pb`` from this folder: ``python proto/generate.py`` (``make proto``).

Two things are changed in what protoc writes: imports become absolute imports of ``shared_ir.pb``, and descriptors go
into a descriptor pool of our own. Package ``inference`` is also defined by tritonclient, under other file names; in one
pool the two would collide as soon as a process imports both.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent
OUTPUT = ROOT.parent / "shared_ir" / "pb"
SOURCES = (
    "ingot/compiler/v1/compiler.proto",
    "ingot/device/v1/device.proto",
    "inference/v2/model_config.proto",
    "inference/v2/grpc_service.proto",
)


RELEASED = ROOT / "released.binpb"
"""What the last release promised, as a FileDescriptorSet; ``python proto/generate.py --release`` writes it when there is one."""


def release() -> int:
    well_known = str(files("grpc_tools") / "_proto")
    return int(protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", f"--descriptor_set_out={RELEASED}", *SOURCES]))


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        well_known = str(files("grpc_tools") / "_proto")
        outputs = [f"--{kind}_out={temporary}" for kind in ("python", "pyi", "grpc_python")]
        status = protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", *outputs, *SOURCES])
        if status != 0:
            return int(status)
        for path in sorted(Path(temporary).rglob("*.py*")):
            target = OUTPUT / path.relative_to(temporary)
            target.parent.mkdir(parents=True, exist_ok=True)
            header = "# mypy: ignore-errors\n" if path.suffix == ".pyi" else ""
            target.write_text(header + rewrite(path.read_text()))
    for directory in [p for p in OUTPUT.rglob("*") if p.is_dir() and p.name != "__pycache__"]:
        (directory / "__init__.py").touch()
    return 0


def rewrite(text: str) -> str:
    text = re.sub(r"^from (inference|ingot)\.", r"from shared_ir.pb.\1.", text, flags=re.MULTILINE)
    text = text.replace("_descriptor_pool.Default()", "_pool.POOL")
    return text.replace(
        "from google.protobuf import descriptor_pool as _descriptor_pool\n",
        "from shared_ir.pb import pool as _pool\n",
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--release"]:
        sys.exit(release())
    shutil.rmtree(OUTPUT / "ingot", ignore_errors=True)
    shutil.rmtree(OUTPUT / "inference", ignore_errors=True)
    sys.exit(main())
