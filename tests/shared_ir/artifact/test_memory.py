"""What was seen of a store, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_ir.artifact.memory import Memory

NAMES = ("a", "a-b", "a.b", "a.b-c", "a_b", "a0", "b", "z9")


@pytest.mark.parametrize("kept", [True, False])
def test_parts_below_a_prefix_are_found_once(tmp_path: Path, kept: bool) -> None:
    memory = Memory(tmp_path / "seen.db" if kept else None)
    for name in NAMES:
        for number in (1, 2, 3):
            memory.remember(f"file:///s/models/{name}/versions/{number:08d}.json", number)
        memory.remember(f"file:///s/models/{name}/versions", 3)
    memory.remember("file:///s/models0/other/x", 1)
    memory.remember("file:///s/model/other/x", 1)
    for reader in (memory, Memory(memory.file)) if kept else (memory,):
        assert reader.below("file:///s/models/") == frozenset(NAMES)
        assert reader.knows("file:///s")
        assert not reader.knows("file:///t")
        assert reader.below("file:///t/models/") == frozenset()
