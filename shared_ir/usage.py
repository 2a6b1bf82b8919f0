"""Wrong usage of a command is an error like all others: a sentence, and no text of argparse over several lines."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from shared_ir.errors import ErrorCode, IngotError


class UsageError(IngotError):
    """A command line that says nothing: the exit status is 2."""


class UsageParser(argparse.ArgumentParser):
    """Raises UsageError instead of printing and leaving. Options are written out, so that a new one changes no old command."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False} | named)

    def error(self, message: str) -> NoReturn:
        raise UsageError(ErrorCode.INVALID_ARGUMENT, message, remedy=f"`{self.prog} --help` shows the usage.")
