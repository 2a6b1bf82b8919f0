"""Files that are written in blocks and mapped."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_ir.storage.files import copy_file, map_file, write_atomically, write_blocks

_BLOCK = 4 << 20


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (3, 0, 9), (_BLOCK,), (_BLOCK - 1, 2), (7, 2 * _BLOCK, 1)])
def test_blocks_are_the_pieces_one_after_the_other(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    pieces = [bytes([65 + i]) * size for i, size in enumerate(sizes)]
    path = tmp_path / "file"
    with path.open("wb", buffering=0) as file:
        write_blocks(file, pieces)
    assert path.read_bytes() == b"".join(pieces)
    assert bytes(map_file(path)) == b"".join(pieces)


def test_a_file_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 40_000)
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()
    write_atomically(tmp_path / "again", source)
    assert (tmp_path / "again").read_bytes() == source.read_bytes()
