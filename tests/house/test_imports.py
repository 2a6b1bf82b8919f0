"""Imports point one way: the table of docs/architecture.md as data, checked against every import statement."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("shared_ir", "compiler_service", "runtime_service", "ingot")

C = "compiler_service.compiler"
BELOW: dict[str, tuple[str, ...]] = {
    "shared_ir": (),
    "shared_ir.expr": ("shared_ir.dtype", "shared_ir.errors", "shared_ir.sizes"),
    "shared_ir.graph": ("shared_ir",),
    f"{C}": ("shared_ir",),
    f"{C}.tensor_expr": ("shared_ir",),
    f"{C}.tensor_expr.meaning": (f"{C}.tensor_expr", "shared_ir"),
    f"{C}.frontend": (f"{C}.tensor_expr", "shared_ir"),
    f"{C}.frontend.reading": (f"{C}.tensor_expr", "shared_ir"),
    f"{C}.frontend.importing": (f"{C}.frontend.reading", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.frontend.standard": (f"{C}.frontend.importing", f"{C}.frontend.reading", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.frontend.requirements": (f"{C}.frontend.importing", f"{C}.frontend.reading", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.frontend.handlers": (
        f"{C}.frontend.requirements",
        f"{C}.frontend.importing",
        f"{C}.frontend.reading",
        f"{C}.tensor_expr",
        "shared_ir",
    ),
    f"{C}.frontend.adapters": (
        f"{C}.frontend.standard",
        f"{C}.frontend.importing",
        f"{C}.frontend.reading",
        f"{C}.tensor_expr",
        "shared_ir",
    ),
    f"{C}.graph_passes": (f"{C}.tensor_expr", "shared_ir"),
    f"{C}.graph_passes.rewriting": (
        f"{C}.graph_passes.analysis",
        f"{C}.tensor_expr",
        f"{C}.pass_order",
        f"{C}.reproducer",
        "shared_ir",
    ),
    f"{C}.graph_passes.analysis": (f"{C}.graph_passes.rewriting", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.loop_ir": (f"{C}.tensor_expr", f"{C}.pass_order", f"{C}.reproducer", "shared_ir"),
    f"{C}.schedule": (f"{C}.loop_ir", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.schedule.language": (f"{C}.loop_ir", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.schedule.model": (f"{C}.schedule.language", f"{C}.loop_ir", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.codegen": (f"{C}.loop_ir", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.codegen.llvm": (f"{C}.loop_ir", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.codegen.math": (f"{C}.codegen.llvm", f"{C}.loop_ir", f"{C}.tensor_expr", "shared_ir"),
    f"{C}.backends": (f"{C}.codegen", f"{C}.loop_ir", "shared_ir"),
    f"{C}.program": (
        f"{C}.codegen",
        f"{C}.frontend",
        f"{C}.graph_passes",
        f"{C}.loop_ir",
        f"{C}.schedule",
        f"{C}.tensor_expr",
        "shared_ir",
    ),
    f"{C}.reference": (
        f"{C}.codegen.toolchain",
        f"{C}.frontend.reading",
        f"{C}.graph_passes",
        f"{C}.loop_ir",
        f"{C}.tensor_expr",
        "shared_ir",
    ),
    f"{C}.tune": (
        f"{C}.program",
        f"{C}.schedule",
        f"{C}.loop_ir",
        f"{C}.backends",
        f"{C}.codegen",
        f"{C}.tensor_expr",
        f"{C}.progress",
        f"{C}.version",
        "shared_ir",
    ),
    f"{C}.tune.records": (
        f"{C}.tune.measuring.trial",
        f"{C}.schedule",
        f"{C}.version",
        "shared_ir",
    ),
    f"{C}.tune.cost": (
        f"{C}.tune.records",
        f"{C}.tune.search",
        f"{C}.schedule",
        f"{C}.loop_ir",
        f"{C}.tensor_expr",
        "shared_ir",
    ),
    f"{C}.tune.search": (f"{C}.schedule.language", "shared_ir"),
    f"{C}.tune.sketches": (
        f"{C}.schedule.language",
        f"{C}.schedule.model",
        f"{C}.schedule.staging",
        f"{C}.tensor_expr",
        "shared_ir",
    ),
    "compiler_service.boundary": ("shared_ir",),
    "compiler_service.jobs": ("compiler_service.boundary.parts", "shared_ir"),
    "compiler_service.store": ("compiler_service.jobs.records", "compiler_service.stages.process", "shared_ir"),
    "ingot.device": ("shared_ir",),
    "runtime_service": ("shared_ir",),
    "runtime_service.executors": ("runtime_service.arrays", "shared_ir"),
    "runtime_service.loading": ("runtime_service.arrays", "runtime_service.executors", "shared_ir"),
}
"""What each room may import of ours, beside itself and what is inside it; of several names that fit a module the longest counts. What
is not listed (the modules at the top of compiler_service, api, worker, stages, ingot) wires the parts together."""

NEVER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("compiler_service", ("runtime_service", "ingot")),
    ("runtime_service", ("compiler_service", "ingot")),
)
ONLY_IN: dict[str, tuple[str, ...]] = {
    "llvmlite": (f"{C}.codegen",),
    "ziglang": (f"{C}.codegen",),
    "celery": ("compiler_service.worker",),
    "grpc": ("compiler_service.api", "compiler_service.server", "runtime_service.api", "shared_ir", "ingot"),
    "onnx": (f"{C}.frontend", f"{C}.reference", "ingot"),
    "google.protobuf": (
        "shared_ir.pb",
        "shared_ir.service_kit",
        "compiler_service.api",
        f"{C}.frontend",
        "runtime_service.api",
        "ingot",
    ),
    "redis": (
        "compiler_service.jobs",
        "compiler_service.wiring",
        "compiler_service.worker",
        "compiler_service.api",
        "compiler_service.metrics",
        "compiler_service.probes",
    ),
    "obstore": ("shared_ir",),
    "onnxruntime": (f"{C}.reference.verification", "ingot"),
    "lightgbm": (f"{C}.tune.cost",),
}
LAZY_ALLOWED = ("ingot", "shared_ir.storage.store")
"""Where functions may import our own code: `ingot` loads the compiler and the runtime only when asked, `store` the
client of remote stores (an optional dependency)."""


MAY_START = {"compiler_service.stages.compiler": {"runtime_service.loading.once"}}
"""Programs of the other service that a module may start: a compiled model is tried by the runtime that will run it."""


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


def home_of(module: str) -> str | None:
    """The room of :data:`BELOW` that ``module`` is in."""
    return max((room for room in BELOW if within(module, (room,))), key=len, default=None)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    own = name_of(path)
    home = home_of(own)
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
    code = (
        "import sys, runtime_service.server, runtime_service.loading.loader;"
        "heavy = {'llvmlite', 'onnx', 'celery', 'ziglang', 'compiler_service'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_device_needs_no_compiler() -> None:
    """Its measuring server loads what the base of the distribution brings, and nothing of our other rooms."""
    code = (
        "import sys, ingot.device.server;"
        "heavy = {'llvmlite', 'onnx', 'celery', 'ziglang', 'uvloop', 'hpack', 'obstore'} & set(sys.modules);"
        "heavy |= {name for name in sys.modules if name.startswith(('compiler_service', 'runtime_service'))};"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_circle_is_left() -> None:
    """Neither statements nor ``python -m`` lead from a module back to it."""
    names = {name_of(path): path for path in modules()}
    after = {name: {m for m in targets(path, names) if m != name} for name, path in names.items()}
    while True:
        free = {name for name, found in after.items() if not found & after.keys()}
        if not free:
            break
        after = {name: found for name, found in after.items() if name not in free}
    assert not after, sorted(after)


LIBRARIES = {"numpy", "llvmlite", "onnx", "google", "ml_dtypes", "mpmath", "onnxruntime", "lightgbm"}
"""What the compiler imports beside the standard library and ours; ziglang is started, onnxruntime and lightgbm may be missing."""


@pytest.mark.parametrize("path", [p for p in modules() if "compiler_service/compiler" in str(p)], ids=name_of)
def test_the_compiler_imports_few_libraries(path: Path) -> None:
    tops = {module.partition(".")[0] for module, _, _ in imports(path)}
    assert tops <= {*sys.stdlib_module_names, *OURS, *LIBRARIES}, tops
    assert not re.search(r"import_module\(|__import__\(", path.read_text()), f"{path}: imports what no table sees"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_algorithms_are_known_to_their_row_alone(path: Path) -> None:
    """A folder of ``schedule/algorithms`` is imported by itself, by others of that room, and by the table of rules."""
    own, room = name_of(path), f"{C}.schedule.algorithms"
    if within(own, (room, f"{C}.schedule.default")):
        return
    assert not [module for module, _, _ in imports(path) if within(module, (room,))], own


def targets(path: Path, names: Mapping[str, Path]) -> set[str]:
    """Our modules that ``path`` imports or starts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside if inside <= names.keys() else {str(node.module), *inside}
    programs = (
        set() if within(name_of(path), ("ingot",)) else started(path)
    )  # the demo starts the command that shows it
    return (found | programs) & names.keys()


def started(path: Path) -> set[str]:
    """Modules after ``-m`` in a list or tuple of strings: what is run as a program of its own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
        words = [item.value if isinstance(item, ast.Constant) else None for item in items]
        found |= {str(after) for word, after in pairwise(words) if word == "-m"}
        found |= {str(word)[2:] for word in words if re.match(r"-m\w", str(word))}
    return found


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_programs_are_started_one_way(path: Path) -> None:
    own = name_of(path)
    for module in started(path) - MAY_START.get(own, set()):
        for package, banned in NEVER:
            assert not (within(own, (package,)) and within(module, banned)), f"{own} starts {module}"
        home = home_of(own)
        if home is not None and within(module, OURS):
            assert within(module, (home, *BELOW[home])), f"{own} starts {module}, which is not below {home}"


def test_the_compiler_is_a_library() -> None:
    """It is imported, and compiles, without what the service around it is made of."""
    code = (
        "import sys, compiler_service.compiler.pipeline;"
        "heavy = {'celery', 'redis', 'grpc', 'obstore', 'compiler_service.api', 'compiler_service.worker'} & set(sys.modules);"
        "print(sorted(heavy)); sys.exit(bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
