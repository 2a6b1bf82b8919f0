"""Imports point one way: the table of docs/architecture.md as data, checked against every import statement."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("shared_ir", "compiler_service", "runtime_service", "ingot")

BELOW: dict[str, tuple[str, ...]] = {
    "shared_ir": (),
    "compiler_service.compiler.tensor_expr": ("shared_ir",),
    "compiler_service.compiler.frontend": ("compiler_service.compiler.tensor_expr", "shared_ir"),
    "compiler_service.compiler.graph_passes": ("compiler_service.compiler.tensor_expr", "shared_ir"),
    "compiler_service.compiler.loop_ir": ("compiler_service.compiler.tensor_expr", "shared_ir"),
    "compiler_service.compiler.schedule": (
        "compiler_service.compiler.loop_ir",
        "compiler_service.compiler.tensor_expr",
        "shared_ir",
    ),
    "compiler_service.compiler.codegen": (
        "compiler_service.compiler.loop_ir",
        "compiler_service.compiler.tensor_expr",
        "shared_ir",
    ),
    "compiler_service.compiler.tune": ("compiler_service.compiler.schedule", "shared_ir"),
    "compiler_service.jobs": ("shared_ir",),
    "runtime_service": ("shared_ir",),
}
"""What each package may import of ours, beside itself. What is not listed (the modules at the top of compiler_service, api,
worker, ingot) wires the parts together."""

NEVER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("compiler_service", ("runtime_service", "ingot")),
    ("runtime_service", ("compiler_service", "ingot")),
)
ONLY_IN: dict[str, tuple[str, ...]] = {
    "llvmlite": ("compiler_service.compiler.codegen",),
    "ziglang": ("compiler_service.compiler.codegen",),
    "celery": ("compiler_service.worker",),
    "onnx": ("compiler_service.compiler.frontend", "ingot"),
    "google.protobuf": (
        "shared_ir.pb",
        "compiler_service.api",
        "compiler_service.compiler.frontend",
        "runtime_service.api",
        "ingot",
    ),
    "redis": (
        "compiler_service.jobs",
        "compiler_service.wiring",
        "compiler_service.worker",
        "compiler_service.api",
        "compiler_service.metrics",
    ),
    "obstore": ("shared_ir",),
    "onnxruntime": ("compiler_service.compiler.reference.verification", "ingot"),
}
LAZY_ALLOWED = ("ingot", "shared_ir.storage.store")
"""Where functions may import our own code: `ingot` loads the compiler and the runtime only when asked, `store` the
client of remote stores (an optional dependency)."""


def modules() -> list[Path]:
    files = [p for package in OURS for p in (ROOT / package).rglob("*.py")]
    return sorted(p for p in files if "_pb2" not in p.name)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> list[tuple[str, int, bool]]:
    """(module, line, inside a function)"""
    found = []
    statements: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), False)]
    while statements:
        node, inside = statements.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.module or "", node.lineno, inside))
        elif not isinstance(node, ast.expr):
            inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            statements += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(f"{p}.") for p in packages)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    own = name_of(path)
    home = max((p for p in BELOW if within(own, (p,))), key=len, default=None)
    for module, line, inside in imports(path):
        where = f"{path.relative_to(ROOT)}:{line} imports {module}"
        for package, banned in NEVER:
            assert not (within(own, (package,)) and within(module, banned)), where
        if within(module, OURS):
            if home is not None:
                assert within(module, (home, *BELOW[home])), f"{where}, which is not below {home}"
            lazy = inside and not within(own, LAZY_ALLOWED) and "__main__" not in path.read_text()
            assert not lazy, f"{where} inside a function"
        for library, places in ONLY_IN.items():
            if within(module, (library,)):
                assert within(own, places), f"{where}: {library} belongs to {', '.join(places)}"


def test_the_runtime_service_needs_no_compiler() -> None:
    """Importing the runtime service loads neither LLVM nor ONNX nor Celery."""
    import subprocess

    code = (
        "import sys, runtime_service.server, runtime_service.loading.loader;"
        "heavy = {'llvmlite', 'onnx', 'celery', 'ziglang', 'compiler_service'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
