"""What an object file leaves for others to define."""

from __future__ import annotations

import struct

_SYMTAB = 2
_UNDEFINED = 0


def undefined_symbols(data: bytes) -> list[str]:
    """Names of the undefined symbols of a little-endian ELF object, 32 or 64 bits."""
    assert data[:4] == b"\x7fELF"
    assert data[5] == 1
    wide = data[4] == 2
    (table,) = struct.unpack_from("<Q" if wide else "<I", data, 0x28 if wide else 0x20)
    size, count = struct.unpack_from("<HH", data, 0x3A if wide else 0x2E)
    sections = [_section(data, table + i * size, wide) for i in range(count)]
    undefined: list[str] = []
    for kind, offset, length, link in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][1]
        step = 24 if wide else 16
        for at in range(offset + step, offset + length, step):  # the first symbol is no symbol
            (name,) = struct.unpack_from("<I", data, at)
            (section,) = struct.unpack_from("<H", data, at + (6 if wide else 14))
            if section == _UNDEFINED and name:
                start = names + name
                undefined.append(data[start : data.index(b"\0", start)].decode())
    return undefined


def _section(data: bytes, at: int, wide: bool) -> tuple[int, int, int, int]:
    """Kind, offset, size and link."""
    if wide:
        kind, _flags, _address, offset, size, link = struct.unpack_from("<IQQQQI", data, at + 4)
    else:
        kind, _flags, _address, offset, size, link = struct.unpack_from("<IIIIII", data, at + 4)
    return kind, offset, size, link
