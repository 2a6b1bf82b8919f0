"""Reading what a linked library needs and offers, and what an object leaves open: 64- and 32-bit little-endian ELF files.

Format: System V gABI chapters 4 and 5; symbol versions: LSB 5.0 Core, section 10.7.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SHT_SYMTAB, _SHT_DYNAMIC, _SHT_DYNSYM, _SHT_VERNEED = 2, 6, 11, 0x6FFFFFFE
_DT_NEEDED = 1
_SHN_UNDEF = 0
_VARIABLES = frozenset(binding << 4 | 1 for binding in (1, 2))
"""``st_info`` of an object (STT_OBJECT) that is global or weak."""


@dataclass(frozen=True)
class SharedLibrary:
    """Facts of a shared library.

    Attributes:
        needed: names of the libraries it asks for.
        exports, imports: names of dynamic symbols.
        versions: symbol versions it asks for, ``GLIBC_2.17``.
    """

    needed: tuple[str, ...]
    exports: tuple[str, ...]
    imports: tuple[str, ...]
    versions: tuple[str, ...]


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    entries: int


def read_shared_library(data: bytes) -> SharedLibrary:
    """The facts of the ELF file ``data``.

    Raises:
        ValueError: not a little-endian ELF file.
    """
    wide, sections = _opened(data)
    exports: list[str] = []
    imports: list[str] = []
    for name, index in _symbols(data, wide, sections, _SHT_DYNSYM):
        (imports if index == _SHN_UNDEF else exports).append(name)
    return SharedLibrary(
        needed=tuple(_needed(data, wide, sections)),
        exports=tuple(sorted(exports)),
        imports=tuple(sorted(imports)),
        versions=tuple(sorted(_versions(data, sections))),
    )


def undefined_symbols(data: bytes) -> list[str]:
    """Names that the object file ``data`` leaves for others to define.

    Raises:
        ValueError: not a little-endian ELF file.
    """
    wide, sections = _opened(data)
    symbols = _symbols(data, wide, sections, _SHT_SYMTAB)
    return [name for name, index in symbols if index == _SHN_UNDEF and name]


def defined_objects(data: bytes) -> list[str]:
    """Names of the variables that the object file ``data`` lets others see.

    Raises:
        ValueError: not a little-endian ELF file.
    """
    wide, sections = _opened(data)
    symbols = _symbols(data, wide, sections, _SHT_SYMTAB, kinds=_VARIABLES)
    return [name for name, index in symbols if index != _SHN_UNDEF]


def _opened(data: bytes) -> tuple[bool, list[_Section]]:
    """Whether it is of 64 bits, and its sections."""
    if data[:4] != b"\x7fELF" or data[5] != 1:
        raise ValueError("not a little-endian ELF file")
    wide = data[4] == 2
    return wide, _sections(data, wide)


def _sections(data: bytes, wide: bool) -> list[_Section]:
    offset = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)[0]
    size, count = struct.unpack_from("<HH", data, 58 if wide else 46)
    layout = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    rows = (struct.unpack_from(layout, data, offset + i * size) for i in range(count))
    return [_Section(kind=r[1], offset=r[4], size=r[5], link=r[6], entries=r[7]) for r in rows]


def _string(data: bytes, table: _Section, offset: int) -> str:
    start = table.offset + offset
    return data[start : data.index(b"\0", start)].decode()


def _symbols(
    data: bytes, wide: bool, sections: list[_Section], kind: int, kinds: frozenset[int] | None = None
) -> list[tuple[str, int]]:
    """Name and section of each symbol in tables of ``kind``; with ``kinds``, of those whose ``st_info`` is one of them."""
    layout = struct.Struct("<IBBHQQ" if wide else "<IIIBBH")
    found = []
    for section in (s for s in sections if s.kind == kind):
        for at in range(section.offset + layout.size, section.offset + section.size, layout.size):
            fields = layout.unpack_from(data, at)
            if kinds is not None and fields[1 if wide else 3] not in kinds:
                continue
            found.append((_string(data, sections[section.link], fields[0]), fields[3] if wide else fields[5]))
    return found


def _needed(data: bytes, wide: bool, sections: list[_Section]) -> list[str]:
    layout = struct.Struct("<qQ" if wide else "<iI")
    return [
        _string(data, sections[section.link], value)
        for section in sections
        if section.kind == _SHT_DYNAMIC
        for tag, value in layout.iter_unpack(data[section.offset : section.offset + section.size])
        if tag == _DT_NEEDED
    ]


def _versions(data: bytes, sections: list[_Section]) -> set[str]:
    found = set()
    for section in (s for s in sections if s.kind == _SHT_VERNEED):
        at = section.offset
        for _ in range(section.entries):
            _, count, _, auxiliary, following = struct.unpack_from("<HHIII", data, at)
            inner = at + auxiliary
            for _ in range(count):
                _, _, _, name, next_inner = struct.unpack_from("<IHHII", data, inner)
                found.add(_string(data, sections[section.link], name))
                inner += next_inner
            at += following
    return found
