"""``docs/api.md`` names every command and method that there is."""

from __future__ import annotations

from pathlib import Path

from ingot.cli.main import make_parser
from ingot.client import Client
from ingot.endpoint import Endpoint

ROOT = Path(__file__).parents[2]


def test_every_command_and_method_is_in_the_interface_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    actions = [action for action in make_parser()._actions if action.choices]
    commands = [str(name) for action in actions for name in action.choices or ()]
    assert len(commands) == 17
    assert [name for name in commands if f"`ingot {name}" not in page] == []
    for kind in (Client, Endpoint):
        methods = [name for name, item in vars(kind).items() if callable(item) and not name.startswith("_")]
        assert [name for name in methods if f"{name}(" not in page] == []
