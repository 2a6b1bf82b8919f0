"""How a model is linked for a target: the linker's own command line and the pieces of the C library that it names.

The C compiler's driver finds them out once, and writes into its cache whenever it is asked again. What is kept here is
only read from then on, so that a process that may write nothing but its own folder can link, and the driver's own time is saved.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compiler_service.compiler.codegen.toolchain.zig import cache_directory, no_cache, run_zig, zig_target
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target

_RECIPE = "recipe.json"
_PROBE, _OUTPUT = "probe.o", "probe.out"
_INPUTS, _RESULT = "<inputs>", "<result>"
_PROGRAM = "int ingot_probe; int main(void) { return 0; }\n"


def link(
    inputs: Sequence[str], result: str, flags: Sequence[str], target: Target, directory: Path, *, static: bool = False
) -> None:
    """Link ``inputs`` into ``result``, in ``directory``, with the flags of the C compiler's driver.

    Raises:
        IngotError: COMPILER_FAULT with the linker's message; UNAVAILABLE where the cache cannot be written.
    """
    folder = know_how_to_link(flags, target, static=static)
    arguments = []
    for word in json.loads((folder / _RECIPE).read_bytes()):
        match word:
            case str():
                arguments += {_INPUTS: list(inputs), _RESULT: [result]}.get(word, [word])
            case [name]:
                arguments.append(str(folder / name))
    run_zig(arguments, directory)


def know_how_to_link(flags: Sequence[str], target: Target, *, static: bool = False) -> Path:
    """The folder of the recipe, which is made where there is none. Raises as :func:`link`."""
    folder = _folder(flags, target, static)
    if not folder.is_dir():
        _write_recipe(folder, flags, target, static)
    return folder


def _folder(flags: Sequence[str], target: Target, static: bool) -> Path:
    parts = (importlib.metadata.version("ziglang"), *zig_target(target, static=static), *flags)
    return cache_directory() / "native" / f"link-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}"


def _write_recipe(folder: Path, flags: Sequence[str], target: Target, static: bool) -> None:
    """Link a program of one line, and keep how that was done."""
    driver = ("cc", *zig_target(target, static=static))
    try:
        temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
        temporary.mkdir(parents=True)
    except OSError as error:
        raise no_cache(error, folder.parent) from error
    try:
        with tempfile.TemporaryDirectory(prefix="ingot-recipe-") as name:
            directory = Path(name)
            (directory / "probe.c").write_text(_PROGRAM)
            (directory / "exports.map").write_text("{ local: *; };\n")
            run_zig([*driver, "-c", "probe.c", "-o", _PROBE], directory)
            said = run_zig([*driver, *flags, _PROBE, "-o", _OUTPUT], directory, verbose=True)
        words = [_kept(word, temporary) for word in _command(said)]
        (temporary / _RECIPE).write_text(json.dumps(words))
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _command(said: str) -> Sequence[str]:
    """The linker's words, from what the driver prints."""
    for line in said.splitlines():
        words = line.split()
        if words[:1] == ["ld.lld"] and _OUTPUT in words and _PROBE in words:
            return words
    raise IngotError(ErrorCode.COMPILER_FAULT, "the driver of the linker does not say how it links", field="linker")


def _kept(word: str, folder: Path) -> str | list[str]:
    """``word`` as the recipe has it: a list with a name stands for a file beside it."""
    if word in (_PROBE, _OUTPUT):
        return _INPUTS if word == _PROBE else _RESULT
    path = cache_directory() / word
    if os.path.isabs(word) or "/" not in word or not path.is_file():
        return word
    name = f"{len(list(folder.iterdir()))}-{path.name}"
    shutil.copyfile(path, folder / name)
    return [name]
