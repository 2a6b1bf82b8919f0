"""What a manifest and a report say of a compilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_service.compiler.backends.table import backend_of
from compiler_service.compiler.codegen.toolchain.zig import min_glibc
from compiler_service.compiler.frontend.reading.source import ModelSource
from compiler_service.compiler.options import CompileOptions
from compiler_service.compiler.program.accuracy import describe_algorithms
from compiler_service.compiler.program.kernels import BuiltKernel
from compiler_service.compiler.program.module_source import ModuleSource
from compiler_service.compiler.program.variants import Variant
from compiler_service.compiler.tensor_expr.registry import own_versions
from compiler_service.compiler.tune.records.book import answers
from compiler_service.compiler.version import compiler_version
from shared_ir.artifact.value import ABI_VERSION, Manifest, artifact_key
from shared_ir.digest import sha256_hex
from shared_ir.graph.ir import walk_graphs
from shared_ir.graph.text import print_graph
from shared_ir.machine.target import Target


def describe(
    name: str,
    source: ModelSource | ModuleSource,
    target: Target,
    options: CompileOptions,
    records: bytes,
    made: str = "",
) -> Manifest:
    """The manifest of what is compiled from these; it names everything that changes code, of passes what they ``made``, a digest."""
    given, model_sha256, version = options.to_dict(), source.sha256(), code_version(target)
    tuned = records_digest(records, target)
    return Manifest(
        name=name,
        key=artifact_key(model_sha256 + made, target, given, tuned, version),
        abi_version=ABI_VERSION,
        compiler_version=version,
        triple=target.triple,
        cpu=target.cpu,
        features=target.features,
        min_glibc=min_glibc(target),
        model_sha256=model_sha256,
        options=given,
    )


def records_digest(records: bytes, target: Target) -> str:
    """Of the tuning records that a compilation for ``target`` may take a schedule from; empty where there are none."""
    usable = answers(records, target)
    return sha256_hex(usable) if usable else ""


def digest_of(variants: Sequence[Variant]) -> str:
    """Of the graphs as passes have left them."""
    return sha256_hex("".join(print_graph(v.module.graph) for v in variants).encode())


def code_version(target: Target) -> str:
    """The version of the compiler, of the code generator for ``target`` where that has one of its own, and of operators of users."""
    return "+".join(filter(None, (compiler_version(), backend_of(target).version, own_versions())))


def describe_code(variants: Sequence[Variant], built: Sequence[BuiltKernel]) -> dict[str, Any]:
    """What the report says of the kernels: how many, the ways through them, those with a plain schedule, the algorithms that cost
    accuracy, whether any draws random numbers."""
    return {
        "kernels": len(built),
        "rules": {b.kernel.name: b.rule for b in built},
        "variants": len(variants),
        "faults": [
            {"kernel": b.kernel.name, "nodes": b.kernel.definition.nodes, "reason": b.fault} for b in built if b.fault
        ],
        "algorithms": [algorithm for item in built for algorithm in describe_algorithms(item)],
        "random": any(n.op == "ingot.Uniform" for g in walk_graphs(variants[-1].module.graph) for n in g.nodes),
    }
