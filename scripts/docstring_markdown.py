"""Docstrings as Markdown: roles and literals become code, indented examples and sections become blocks and lists."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

_ROLE = re.compile(r":(?:mod|func|class|data|meth|attr):`~?([^`]+)`")
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)
_CODE = re.compile(r"(`[^`]*`)")
_SIGN = re.compile(r"(?<![\w*])\*\w[^*]*\w\*(?!\w)|([*<\[\]])")
"""What Markdown would take for its own; a word between asterisks is meant so."""
_STEP = re.compile(r"(before|after|outer): +")
"""Lines of their own in the docstrings of primitives: what there is before, and what afterwards."""
SECTIONS = ("Args:", "Raises:", "Attributes:")


def inline(text: str) -> str:
    """One paragraph, in one line."""
    marked = _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", " ".join(text.split())))
    parts = _CODE.split(marked)
    return "".join(
        part if part.startswith("`") else _SIGN.sub(lambda s: rf"\{s[1]}" if s[1] else s[0], part) for part in parts
    )


def first_sentence(docstring: str) -> str:
    """What stands before the first full stop, semicolon or empty line."""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return inline(re.split(r"(?<=[^.])\. |; |::$", paragraph)[0].rstrip(".:;"))


def markdown(docstring: str) -> str:
    """The docstring without ``Attributes``, which stand with the members of their class."""
    return "\n\n".join(_blocks(docstring.splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    place = 0
    while place < len(lines):
        line = lines[place]
        if not line.strip():
            place += 1
            continue
        if line in SECTIONS:
            inner = list(itertools.takewhile(_is_inside, lines[place + 1 :]))
            yield from _section(line, _dedented(inner))
        elif line.startswith(" "):
            inner = list(itertools.takewhile(_is_inside, lines[place:]))
            yield _fenced(_dedented(inner))
            place -= 1
        else:
            inner = list(itertools.takewhile(lambda each: each.strip() and each not in SECTIONS, lines[place:]))
            yield from _paragraph(inner)
            place -= 1
        place += 1 + len(inner)


def _is_inside(line: str) -> bool:
    return not line.strip() or line.startswith(" ")


def _dedented(lines: Sequence[str]) -> list[str]:
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[depth:].rstrip() for line in lines).strip("\n").split("\n")


def _paragraph(lines: Sequence[str]) -> Iterator[str]:
    """A paragraph; lines that begin with a word of a step are items of a list."""
    plain = list(itertools.takewhile(lambda line: not _STEP.match(line), lines))
    text = " ".join(plain).strip()
    if text and text != "::":
        yield inline(text[:-1] if text.endswith("::") else text)
    steps = "\n".join(lines[len(plain) :])
    if steps:
        yield "\n".join(f"- {inline(step)}" for step in re.split(r"\n(?=(?:before|after|outer): )", steps))


def _fenced(lines: Sequence[str]) -> str:
    text = _ROLE.sub(r"\1", "\n".join(lines))
    try:
        ast.parse(text)
        language = "python"
    except SyntaxError:
        language = "text"
    return f"```{language}\n{text}\n```"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    items = re.split(r"\n(?=\S)", "\n".join(lines))
    if title == "Raises:":
        yield "\n".join(f"Raises {_named(item)}" for item in items)
    elif title == "Args:":
        yield "\n".join(
            f"* {_named(item)}" for item in items
        )  # another mark than members have: lists that do not run together


def _named(item: str) -> str:
    name, _, meaning = item.partition(": ")
    return f"`{name}`: {inline(meaning)}"
