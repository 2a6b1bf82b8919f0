"""The public names of the package, read off its sources: what each is called, takes and gives, and what its docstring says.

Nothing is imported: the answer is that of the text, whatever the Python and the machine that it is asked on.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = ("ingot", "shared_ir", "compiler_service", "runtime_service")
MODULES = ("ingot", "ingot.te", "ingot.te.nn", "ingot.ir", "ingot.ir.passes", "ingot.codegen", "ingot.backend")
"""Where users import from."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Parameter:
    """One of a function, or a field that a constructor takes. ``default`` is its text; None where there is none."""

    name: str
    annotation: str | None
    default: str | None = None

    def __str__(self) -> str:
        head = f"{self.name}: {self.annotation}" if self.annotation else self.name
        if self.default is None:
            return head
        return f"{head} = {self.default}" if self.annotation else f"{head}={self.default}"


@dataclass(frozen=True)
class Signature:
    """What a call takes and gives; ``result`` is empty of a constructor, None where nothing is said."""

    parameters: tuple[Parameter, ...]
    result: str | None

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))}){self.end}"

    @property
    def end(self) -> str:
        return f" -> {self.result}" if self.result else ""

    @property
    def is_typed(self) -> bool:
        return self.result is not None and all(p.annotation or p.name in "*/" for p in self.parameters)


@dataclass(frozen=True)
class Definition:
    """What a module defines under a name: the last statement, and those before it that are its overloads."""

    module: str
    name: str
    node: ast.stmt
    doc: str = ""
    """Of an assignment, the text below it."""
    overloads: tuple[FunctionNode, ...] = ()

    @cached_property
    def docstring(self) -> str:
        if isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return ast.get_docstring(self.node) or ""
        return inspect.cleandoc(self.doc)

    @property
    def is_constant(self) -> bool:
        return isinstance(self.node, ast.Assign | ast.AnnAssign)

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FunctionNode)

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """Of a function: its own, or those of its overloads."""
        nodes = self.overloads or (self.node,)
        return tuple(signature_of(node) for node in nodes if isinstance(node, FunctionNode))


def is_class(found: Definition) -> bool:
    return isinstance(found.node, ast.ClassDef)


def value_text(found: Definition) -> str:
    """What an assignment gives to the name; empty of others."""
    match found.node:
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return written(value)
    return ""


@dataclass(frozen=True)
class Public:
    """A name that users import, and what it is. ``definition`` is None for a module."""

    module: str
    name: str
    definition: Definition | None = field(repr=False)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


# -- modules


@cache
def text_of_module(module: str) -> str | None:
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file.read_text() if file.exists() else None


@cache
def source_of(module: str) -> ast.Module | None:
    text = text_of_module(module)
    return None if text is None else ast.parse(text)


def comment_of(module: str, node: ast.stmt) -> str:
    """The comment at the end of the line of a statement."""
    line = (text_of_module(module) or "").splitlines()[(node.end_lineno or 1) - 1]
    return line.encode()[node.end_col_offset or 0 :].decode().strip().removeprefix("#").strip()


def module_docstring(module: str) -> str:
    return ast.get_docstring(source_of(module) or ast.Module([], [])) or ""


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is imported or its types are checked."""
    for node in body:
        match node:
            case ast.With(body=inner):
                yield from top_level(inner)
            case ast.If(body=inner, orelse=other) | ast.Try(body=inner, orelse=other):
                yield from top_level([*inner, *other])
            case _:
                yield node


@cache
def names_of(module: str) -> Mapping[str, Definition | tuple[str, str]]:
    """Name -> its definition, or module and name that it is imported from."""
    found: dict[str, Definition | tuple[str, str]] = {}
    tree = source_of(module)
    body = list(top_level(tree.body)) if tree else []
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        for name, meaning in _named(module, node, after, found):
            found[name] = meaning
    return found


def _named(
    module: str, node: ast.stmt, after: ast.stmt, before: Mapping[str, Definition | tuple[str, str]]
) -> Iterator[tuple[str, Definition | tuple[str, str]]]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, Definition(module, name, node, overloads=_overloads(before.get(name)))
        case ast.ClassDef(name=name):
            yield name, Definition(module, name, node)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name, Definition(module, name, node, text_of(after))
        case ast.ImportFrom(module=str(origin), names=imported):
            for each in imported:
                yield each.asname or each.name, (origin, each.name)


def _overloads(before: Definition | tuple[str, str] | None) -> tuple[FunctionNode, ...]:
    if (
        isinstance(before, Definition)
        and isinstance(before.node, FunctionNode)
        and has_decorator(before.node, "overload")
    ):
        return (*before.overloads, before.node)
    return ()


def text_of(node: ast.stmt) -> str:
    """The text of a statement that is nothing but a text."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def find(module: str, name: str) -> Definition | None:
    """What ``name`` is in ``module``, wherever it comes from; None where it is not ours, or a module."""
    meaning = names_of(module).get(name)
    while isinstance(meaning, tuple):
        module, name = meaning
        if module.partition(".")[0] not in OURS or source_of(f"{module}.{name}") is not None:
            return None
        meaning = names_of(module).get(name)
    return meaning


def exported(module: str) -> tuple[str, ...]:
    """What ``__all__`` says; without, what the module itself defines, in the order of its text."""
    names = names_of(module)
    own = names.get("__all__")
    if isinstance(own, Definition) and isinstance(own.node, ast.Assign):
        return tuple(ast.literal_eval(own.node.value))
    return tuple(name for name, found in names.items() if isinstance(found, Definition) and not name.startswith("_"))


def public_names(module: str) -> tuple[Public, ...]:
    return tuple(Public(module, name, find(module, name)) for name in exported(module))


# -- functions


def signature_of(node: FunctionNode, *, is_bound: bool = False) -> Signature:
    """The signature of a function; ``is_bound`` leaves the first parameter out."""
    own = node.args
    positional = [*own.posonlyargs, *own.args]
    defaults = [None] * (len(positional) - len(own.defaults)) + list(own.defaults)
    found = [_parameter(a, d) for a, d in zip(positional, defaults, strict=True)]
    if own.posonlyargs and len(own.posonlyargs) > int(is_bound):
        found.insert(len(own.posonlyargs), Parameter("/", None))
    found = found[1:] if is_bound else found
    if own.vararg:
        found.append(_parameter(own.vararg, None, "*"))
    elif own.kwonlyargs:
        found.append(Parameter("*", None))
    found += [_parameter(a, d) for a, d in zip(own.kwonlyargs, own.kw_defaults, strict=True)]
    if own.kwarg:
        found.append(_parameter(own.kwarg, None, "**"))
    return Signature(tuple(found), unparsed(node.returns))


def _parameter(argument: ast.arg, default: ast.expr | None, stars: str = "") -> Parameter:
    return Parameter(
        f"{stars}{argument.arg}", unparsed(argument.annotation), None if default is None else written(default)
    )


def unparsed(node: ast.expr | None) -> str | None:
    """The text of an expression; what stands in quotes as a type stands there without."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        return node.value
    return None if node is None else written(node)


def written(node: ast.expr) -> str:
    """The text of an expression, its strings in double quotes where they hold none."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def has_decorator(node: FunctionNode | ast.ClassDef, *names: str) -> bool:
    """Whether one of its decorators has one of these names."""
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(ast.unparse(d).rpartition(".")[2] in names for d in called)
