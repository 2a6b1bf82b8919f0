"""``docs/operators.md`` out of onnx's node cases and the importer's type check: ``python scripts/document_operators.py``.

A type counts as *run* when a case of the ``onnx`` package with it passes through compiled code (the suite, `make conformance`,
fails where this changes), as *typed* when the importer accepts such a case retold in that type, and as refused when it does not.
"""

from __future__ import annotations

import copy
import itertools
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx.backend.test.loader import load_model_tests

from compiler_service.compiler.frontend.adapters.microsoft.table import MICROSOFT
from compiler_service.compiler.frontend.adapters.table import ADAPTATIONS
from compiler_service.compiler.frontend.importer import HANDLERS
from compiler_service.compiler.frontend.importing.node import SourceNode
from compiler_service.compiler.frontend.reading.source import FIRST_OPSET, NEWEST_OPSET
from compiler_service.compiler.frontend.standard.forms import Use
from compiler_service.compiler.frontend.standard.functions import has_definition
from compiler_service.compiler.frontend.standard.microsoft import MICROSOFT_FORMS
from compiler_service.compiler.frontend.standard.uses import EVERYWHERE, STANDARD
from compiler_service.compiler.pipeline import check_model
from compiler_service.compiler.tensor_expr.registry import OPERATORS
from ingot.conformance_known import KNOWN
from shared_ir.storage.files import write_atomically

PAGE = Path(__file__).parent.parent / "docs" / "operators.md"
_CASES_OF_A_TYPE = 3
"""So many cases of an operator are retold in a type before it counts as refused."""
_SHORT = {
    "FLOAT": "f32", "FLOAT16": "f16", "DOUBLE": "f64", "BFLOAT16": "bf16", "BOOL": "bool", "STRING": "string",
    "COMPLEX64": "c64", "COMPLEX128": "c128", "FLOAT8E4M3FN": "f8e4m3fn", "FLOAT8E4M3FNUZ": "f8e4m3fnuz",
    "FLOAT8E5M2": "f8e5m2", "FLOAT8E5M2FNUZ": "f8e5m2fnuz", "FLOAT4E2M1": "f4e2m1", "FLOAT8E8M0": "f8e8m0",
    **{f"INT{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)}, **{f"UINT{n}": f"u{n}" for n in (2, 4, 8, 16, 32, 64)},
}  # fmt: skip
_ORDER = list(_SHORT.values())


@dataclass
class Types:
    """What is known of the element types of one operator."""

    run: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    node: onnx.NodeProto
    variable: str
    """The type variable of the first input of the operator, or of its output where it has none."""
    dtype: str


def schemas(domain: str) -> dict[str, list[onnx.defs.OpSchema]]:
    """Every form of every operator of a domain, by name, oldest first."""
    found: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == domain and schema.support_level.name != "EXPERIMENTAL":
            found.setdefault(schema.name, []).append(schema)
    return {name: sorted(forms, key=lambda s: int(s.since_version)) for name, forms in sorted(found.items())}


def way_of(name: str, domain: str = "") -> str:
    """How the compiler comes from the operator to code; empty where it does not."""
    qualified = f"{domain}.{name}" if domain else name
    if qualified in HANDLERS or name in ("Constant", "If", "Loop", "Scan"):
        return "importer"
    if qualified in OPERATORS:
        return "definition"
    if qualified in ADAPTATIONS:
        return "other operators"
    return "function of the standard" if has_definition(SourceNode(name, (), (), domain=domain)) else ""


def node_cases() -> Iterator[Case]:
    """The cases of one node, with the type that its first operand has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    for case in cases:
        if len(case.model.graph.node) == 1 and case.name not in KNOWN and not case.name.endswith("_expanded"):
            found = _case(case.name, case.model)
            if found is not None:
                yield found


def _case(name: str, model: onnx.ModelProto) -> Case | None:
    (node,) = model.graph.node
    opset = {o.domain: o.version for o in model.opset_import}.get(node.domain, 0)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    named, formal = (node.input, schema.inputs) if node.input else (node.output, schema.outputs)
    values = {v.name: v.type for v in (*model.graph.input, *model.graph.output)}
    first = values.get(named[0])
    if first is None or not first.HasField("tensor_type"):
        return None
    dtype = onnx.TensorProto.DataType.Name(first.tensor_type.elem_type)
    return Case(name, model, node, formal[0].type_str, _SHORT.get(dtype, dtype.lower()))


def type_names(case: Case) -> list[str]:
    """Names of TensorProto.DataType that the newest form of the operator allows for the case's type variable."""
    schema = onnx.defs.get_schema(case.node.op_type, NEWEST_OPSET if not case.node.domain else 5, case.node.domain)
    for constraint in schema.type_constraints:
        if constraint.type_param_str == case.variable:
            inner = [t[7:-1].upper() for t in constraint.allowed_type_strs if t.startswith("tensor(")]
            return [t for t in inner if t in _SHORT]
    return []


def _can_be_retold(case: Case) -> bool:
    """Constants keep the type of their attribute, and BitCast the width of its result."""
    return bool(case.node.input) and case.node.op_type != "BitCast"


def retold(case: Case, type_name: str) -> onnx.ModelProto:
    """The model of a case in the newest opset with another type for its type variable."""
    model = copy.deepcopy(case.model)
    (node,) = model.graph.node
    schema = onnx.defs.get_schema(node.op_type, NEWEST_OPSET if not node.domain else 5, node.domain)
    number = onnx.TensorProto.DataType.Value(type_name)
    values = {v.name: v.type for v in (*model.graph.input, *model.graph.output)}
    for names, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for index, name in enumerate(names):
            parameter = formal[min(index, len(formal) - 1)]
            if name in values and parameter.type_str == case.variable and values[name].HasField("tensor_type"):
                values[name].tensor_type.elem_type = number
    return model


def table_of_types(cases: Sequence[Case]) -> Mapping[str, Types]:
    """Operator -> its types; every pair that no case runs is tried on up to three cases."""
    found: dict[str, Types] = {}
    by_operator: dict[str, list[Case]] = {}
    for case in cases:
        by_operator.setdefault(case.node.op_type, []).append(case)
    for name, own in sorted(by_operator.items()):
        types = found[name] = Types(run={c.dtype for c in own})
        for type_name in dict.fromkeys(t for c in own if _can_be_retold(c) for t in type_names(c)):
            short = _SHORT[type_name]
            if short in types.run:
                continue
            able = [c for c in own if type_name in type_names(c)][:_CASES_OF_A_TYPE]
            accepted = any(check_model(retold(c, type_name).SerializeToString()).is_supported for c in able)
            (types.typed if accepted else types.refused).add(short)
    return found


def _listed(types: set[str]) -> str:
    return " ".join(sorted(types, key=lambda t: (_ORDER.index(t) if t in _ORDER else 99, t))) or "–"


def operator_rows(domain: str, types: Mapping[str, Types]) -> Iterator[str]:
    for name, forms in schemas(domain).items():
        if domain and name not in types and not way_of(name, domain):
            types = {**types, name: Types()}
        versions = " ".join(str(f.since_version) for f in forms if not f.deprecated)
        own = types.get(name, Types())
        way = way_of(name, domain) or "**refused**"
        yield f"| {name} | {versions or '(removed)'} | {way} | {_listed(own.run)} | {_listed(own.typed)} | {_listed(own.refused)} |"


INTRODUCTION = f"""# Operators

Generated by `make operators` from the node cases of `onnx` {onnx.__version__}; the tests notice when it is out of date.

Models of opset {FIRST_OPSET} to {NEWEST_OPSET} are read. *Forms* are the opsets in which the standard changed an operator: each of them
is brought to the newest, so a form is supported where the operator is. *Way*: a **definition** is compiled directly, **other
operators** stand for it, the **function of the standard** is inlined, and the **importer** resolves what is control flow, a
sequence, or a size that only the run knows.

Types are those of the first operand. *Run*: a case of the standard with this type passes through compiled code. *Typed*: no case
has this type; the importer accepts one that is retold in it. *Refused*: the importer says why, by node and type.

`ingot check MODEL` tells the same of one model, every obstacle at once.
"""


HINTS = """An attribute that an operator does not have is refused by name, in every domain and every opset; of functions that the model
defines, their own nodes say what an attribute does. Of the operators of ai.onnx and ai.onnx.ml every attribute is read but for these."""


def _values(use: Use) -> str:
    return ", ".join(f"`{v}`" for v in use.values)


def foreign_rows() -> Iterator[str]:
    """Operators of com.microsoft: which attributes are read, which change nothing, which have few values."""
    for name, described in sorted(MICROSOFT_FORMS.items()):
        uses = sorted(described.attributes.items())
        read = " ".join(n for n, use in uses if not use.hint and not use.values)
        hints = "; ".join(f"{n}: {use.hint}" for n, use in uses if use.hint)
        limited = "; ".join(f"{n}: {_values(use)}" for n, use in uses if use.values)
        yield f"| {name} | {read or '–'} | {limited or '–'} | {hints or '–'} |"


def hint_rows() -> Iterator[str]:
    """Attributes of the standard that change nothing, with the reason."""
    for name, uses in sorted({"(every operator)": EVERYWHERE, **STANDARD}.items()):
        for attribute, use in uses.items():
            yield f"| {name} | {attribute} | {use.hint} |"


def page() -> str:
    cases = list(node_cases())
    parts = [INTRODUCTION]
    for domain, title in (("", "ai.onnx"), ("ai.onnx.ml", "ai.onnx.ml")):
        types = table_of_types([c for c in cases if c.node.domain == domain])
        head = "| Operator | Forms | Way | Run | Typed | Refused |\n|---|---|---|---|---|---|"
        parts.append(f"## {title}\n\n{head}\n" + "\n".join(operator_rows(domain, types)) + "\n")
    rows = "\n".join(foreign_rows())
    note = (
        "Written by exporters and by the optimizer and quantizer of ONNX Runtime; each is tested against ONNX Runtime in\n"
        "`tests/compiler_service/compiler/microsoft`, in float32 or 8-bit integers. *Read*: the attribute changes the result\n"
        "as it does in ONNX Runtime. *Limited*: other values are refused by name. *Hints* never change a result."
    )
    head = "| Operator | Read | Limited | Hints |\n|---|---|---|---|"
    parts.append(f"## com.microsoft\n\n{note}\n\n{head}\n{rows}\n")
    head = "| Operator | Attribute | Why |\n|---|---|---|"
    hints = "\n".join(hint_rows())
    parts.append(f"## Attributes that change nothing\n\n{HINTS}\n\n{head}\n{hints}\n")
    return "\n".join(parts)


def skeleton(text: str) -> list[str]:
    """What can be told without running anything: names, forms and ways, line by line."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| Operator")]
    return ["|".join(row.split("|")[1:4]) for row in rows]


def current_skeleton() -> list[str]:
    own = itertools.chain(*(operator_rows(domain, {}) for domain in ("", "ai.onnx.ml")))
    return skeleton("\n".join([*own, *foreign_rows(), *hint_rows()]))


def left_out() -> Iterator[str]:
    """Operators of the tables that no schema or form describes, so that the importer refuses them and no page names them."""
    handled = {op.removeprefix("com.microsoft.") for op in HANDLERS if op.startswith("com.microsoft.")}
    for name in sorted({*MICROSOFT, *handled} - MICROSOFT_FORMS.keys()):
        yield f"com.microsoft.{name} has no form: describe its operands and attributes in frontend/standard/microsoft.py"
    for name in sorted(name for name in OPERATORS if "." not in name and name not in schemas("")):
        yield f"{name} has no schema in onnx {onnx.__version__}, and exists in no opset: nothing can import it"


def main() -> int:
    missing = list(left_out())
    for sentence in missing:
        print(sentence, file=sys.stderr)
    if missing:
        return 1
    write_atomically(PAGE, page().encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
