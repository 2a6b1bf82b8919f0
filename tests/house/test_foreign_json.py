"""JSON of others is read in one way, which fails in one way: ``json.loads`` raises RecursionError too, and reads what cannot be written."""

from __future__ import annotations

import ast

from tests.house.test_imports import ROOT, modules

OWN = {
    "compiler_service/boundary/begin/sitecustomize.py": "its environment is what the worker wrote, and it imports nothing",
    "compiler_service/boundary/policy.py": "what the worker wrote",
    "compiler_service/boundary/state.py": "what a process of ours wrote that has read no model",
    "compiler_service/compiler/codegen/toolchain/frames.py": "what the linker's process, a copy of this one, wrote",
    "compiler_service/compiler/codegen/toolchain/recipe.py": "what a stage wrote that reads no model",
    "compiler_service/compiler/graph_passes/rewriting/option_text.py": "one text in quotes",
    "compiler_service/stages/messages.py": "catches what there is to catch, and makes halves of pairs visible instead of dropping the line",
    "compiler_service/stages/process.py": "what the worker wrote",
    "ingot/demo/latency.py": "what a process of ours wrote",
    "ingot/embedded/installation.py": "what the services of this installation wrote",
    "ingot/home.py": "what `ingot up` wrote",
    "runtime_service/processes/lending.py": "processes of one server",
    "runtime_service/processes/told.py": "processes of one server",
    "shared_ir/artifact/layout.py": "signed, since it was read",
    "shared_ir/foreign_json.py": "this is the one way",
    "shared_ir/graph/parse.py": "one text in quotes",
    "shared_ir/plan/json_form.py": "signed, and catches what there is to catch",
}
"""Modules that read JSON by themselves, and why they may."""


def test_who_reads_json_of_others_does_so_in_one_way() -> None:
    found = {str(path.relative_to(ROOT)) for path in modules() if _reads_json(ast.parse(path.read_text()))}
    assert found == set(OWN)


def _reads_json(tree: ast.AST) -> bool:
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        isinstance(own, ast.Attribute) and own.attr in ("loads", "load") and getattr(own.value, "id", "") == "json"
        for own in called
    )
