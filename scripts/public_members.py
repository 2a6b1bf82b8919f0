"""The members of public classes, read off their sources as :mod:`scripts.public_names` reads names."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from scripts.public_names import (
    Definition,
    FunctionNode,
    Parameter,
    Signature,
    comment_of,
    find,
    has_decorator,
    signature_of,
    text_of,
    unparsed,
    written,
)

CALLED = ("__call__", "__getitem__")
"""Methods that are called where their names are not written."""
_PROPERTIES = ("property", "cached_property", "DerivedAttribute")
_NOT_FIELDS = ("ClassVar", "KW_ONLY")


@dataclass(frozen=True)
class Member:
    """Of a public class.

    Attributes:
        kind: ``method``, ``class method``, ``static method``, ``property``, ``attribute``, or ``value`` of an enumeration.
        docstring: its own; else, of an override, that of what it overrides; of an attribute, what ``Attributes`` of the class says.
        owner: the class that defines it: the one that was asked for, or one that it is derived from.
        is_override: whether it says nothing itself, and what it overrides says what it does.
    """

    name: str
    kind: str
    docstring: str
    owner: Definition
    signature: Signature | None = None
    type: str | None = None
    is_override: bool = False

    @property
    def is_typed(self) -> bool:
        return self.kind == "value" or (self.signature.is_typed if self.signature else self.type is not None)


def class_of(definition: Definition) -> ast.ClassDef:
    if not isinstance(definition.node, ast.ClassDef):
        raise TypeError(f"{definition.module}.{definition.name} is no class")
    return definition.node


def lineage(definition: Definition) -> tuple[Definition, ...]:
    """The class and the classes of ours that it is derived from, nearest first."""
    found = [definition]
    for base in class_of(definition).bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        own = find(definition.module, name.id) if isinstance(name, ast.Name) else None
        if own is not None and isinstance(own.node, ast.ClassDef):
            found += [each for each in lineage(own) if each not in found]
    return tuple(found)


def foreign_bases(definition: Definition) -> list[str]:
    """Classes of others that it is derived from, by any of ours, as they are written there."""
    return [
        ast.unparse(base)
        for each in lineage(definition)
        for base in class_of(each).bases
        if not isinstance(base, ast.Name) or find(each.module, base.id) is None
    ]


def is_enumeration(definition: Definition) -> bool:
    return any(base.endswith(("Enum", "Flag")) for base in foreign_bases(definition))


# -- what a class is called with


def constructor(definition: Definition) -> Signature | None:
    """None of what is not made by being called: an enumeration, a protocol, a class of no fields."""
    if is_enumeration(definition) or "Protocol" in foreign_bases(definition):
        return None
    for each in lineage(definition):
        for statement in class_of(each).body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                return replace(signature_of(statement, is_bound=True), result="")
        if has_decorator(class_of(each), "dataclass"):
            parameters = _parameters(definition)
            return Signature(parameters, "") if parameters else None
    return None


def _parameters(definition: Definition) -> tuple[Parameter, ...]:
    """Those of the constructor of a dataclass."""
    found: dict[str, tuple[Parameter, bool]] = {}
    for each in reversed(lineage(definition)):
        for target, node in _fields(class_of(each)):
            options = _options(node.value)
            by_name = options.get("kw_only") == "True"
            found[target] = Parameter(target, unparsed(node.annotation), _default(node.value, options)), by_name
    shown = [(p, by_name) for p, by_name in found.values() if not p.name.startswith("_")]
    plain, named = ([p for p, by_name in shown if by_name is wanted] for wanted in (False, True))
    return (*plain, *((Parameter("*", None), *named) if named else ()))


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.AnnAssign]]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            annotation = ast.unparse(each.annotation)
            if not annotation.startswith(_NOT_FIELDS) and _options(each.value).get("init") != "False":
                yield each.target.id, each


def _options(value: ast.expr | None) -> Mapping[str, str]:
    """What ``field(...)`` says of a field."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("field", "dataclasses.field"):
        return {each.arg: ast.unparse(each.value) for each in value.keywords if each.arg}
    return {}


def _default(value: ast.expr | None, options: Mapping[str, str]) -> str | None:
    if options or value is None:
        made = options.get("default_factory")
        return options.get("default", {"dict": "{}", "list": "[]"}.get(made, f"{made}()") if made else None)
    return written(value)


# -- members


def members(definition: Definition) -> tuple[Member, ...]:
    """Those that are public, of the class and of ours that it is derived from, in the order of their text."""
    found: dict[str, Member] = {}
    is_enum = is_enumeration(definition)
    for each in lineage(definition):
        for member in _members_of_class(each, is_enum):
            before = found.get(member.name)
            if before is None:
                found[member.name] = member
            elif not before.docstring:
                found[member.name] = replace(
                    before, docstring=member.docstring, type=before.type or member.type, is_override=True
                )
    return tuple(found.values())


def _members_of_class(definition: Definition, is_enum: bool) -> Iterator[Member]:
    node = class_of(definition)
    told = described_attributes(definition.docstring)
    for statement, after in pairwise([*node.body, ast.Pass()]):
        match statement:
            case ast.FunctionDef(name="__init__"):
                yield from _assigned(statement, told, definition)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if is_public(statement.name):
                yield _method(statement, definition)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if is_public(name):
                text = inspect.cleandoc(text_of(after)) or told.get(name, "")
                yield Member(name, "attribute", text, definition, type=unparsed(annotation))
            case ast.Assign(targets=[ast.Name(id=name)]) if is_public(name):
                text = (
                    inspect.cleandoc(text_of(after)) or told.get(name, "") or comment_of(definition.module, statement)
                )
                yield Member(name, "value" if is_enum else "attribute", text, definition)


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in CALLED


def _method(node: FunctionNode, owner: Definition) -> Member:
    text = ast.get_docstring(node) or ""
    if has_decorator(node, *_PROPERTIES):
        return Member(node.name, "property", text, owner, type=unparsed(node.returns))
    kinds = {"classmethod": "class method", "staticmethod": "static method"}
    kind = next((kind for name, kind in kinds.items() if has_decorator(node, name)), "method")
    return Member(node.name, kind, text, owner, signature_of(node, is_bound=kind != "static method"))


def _assigned(node: ast.FunctionDef, told: Mapping[str, str], owner: Definition) -> Iterator[Member]:
    """Attributes that a constructor sets; those that are arguments have their type, of others ``Attributes`` names them."""
    types = {a.arg: unparsed(a.annotation) for a in (*node.args.args, *node.args.kwonlyargs)}
    for each in ast.walk(node):
        targets = (
            each.targets if isinstance(each, ast.Assign) else [each.target] if isinstance(each, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and is_public(target.attr):
                given = unparsed(each.annotation) if isinstance(each, ast.AnnAssign) else types.get(target.attr)
                yield Member(target.attr, "attribute", told.get(target.attr, ""), owner, type=given)


def described_attributes(docstring: str) -> Mapping[str, str]:
    """What the section ``Attributes`` of a docstring says, by name."""
    _, _, rest = f"\n{docstring}".partition("\nAttributes:\n")
    lines = itertools.takewhile(lambda line: not line or line.startswith(" "), rest.splitlines())
    return dict(_items(inspect.cleandoc("\n".join(lines))))


def _items(text: str) -> Iterator[tuple[str, str]]:
    for item in re.split(r"\n(?=\w)", text):
        names, _, meaning = item.partition(": ")
        for name in names.split(", "):
            yield name, " ".join(meaning.split())
