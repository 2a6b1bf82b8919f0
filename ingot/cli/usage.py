"""How commands are used: parsing whose mistakes are errors like all others, and no option that is taken and ignored."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared_ir.errors import ErrorCode
from shared_ir.usage import UsageError, UsageParser

ALWAYS = frozenset({"json", "help"})
"""Options that mean something in every way of using every command."""


class Parser(UsageParser):
    """Whose result says which command it is of."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse has it; ``parser`` of the result is that of the command."""
        found, rest = super().parse_known_args(args, namespace)
        if "parser" not in found:
            found.parser = self
        return found, rest


@dataclass(frozen=True)
class Way:
    """One way of using a command.

    Attributes:
        when: as in "``--out`` means nothing ``when``".
        uses: the options that mean something then, as attributes of parsed arguments.
    """

    when: str
    uses: frozenset[str]

    @classmethod
    def of(cls, when: str, uses: str) -> Way:
        return cls(when, frozenset(uses.split()))

    def require(self, arguments: argparse.Namespace) -> None:
        """Raises UsageError for the first option that was given and means nothing."""
        for name, option in sorted(arguments.given.items()):
            if name not in self.uses | ALWAYS:
                raise UsageError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"{option} means nothing {self.when}",
                    field=option,
                    remedy="Leave it out; `--help` shows what it is for.",
                )


def parse(parser: argparse.ArgumentParser, texts: Sequence[str]) -> argparse.Namespace:
    """Parsed arguments; ``given`` has the options that ``texts`` names, with defaults or without: attribute -> option.

    Raises:
        UsageError: and SystemExit for ``--help`` and ``--version``, which print and end.
    """
    arguments = parser.parse_args(texts)
    actions = arguments.parser._actions
    defaults = [action.default for action in actions]
    for action in actions:
        action.default = argparse.SUPPRESS  # what is there after parsing again was given
    given = vars(parser.parse_args(texts))
    for action, default in zip(actions, defaults, strict=True):
        action.default = default
    arguments.given = {a.dest: a.option_strings[-1] for a in actions if a.dest in given and a.option_strings}
    return arguments


def commands(parser: argparse.ArgumentParser, name: str = "") -> Mapping[str, argparse.ArgumentParser]:
    """The parser of each command that can be run, by its words."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        return {name: parser}
    return {
        words: found
        for action in nested
        for word, own in action.choices.items()
        for words, found in commands(own, f"{name} {word}".strip()).items()
    }
