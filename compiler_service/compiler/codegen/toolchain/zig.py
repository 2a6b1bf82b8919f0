"""The C compiler and linker: the ``zig`` program of the PyPI wheel ``ziglang``, called without its Python wrapper."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import install_command
from shared_ir.machine.target import Target

_TIMEOUT_SECONDS = 1800.0
"""The first call for a libc builds it: musl takes 70 s of a core. What a job may take ends it sooner."""

_NO_ROOM = re.compile(r"\bNoSpaceLeft\b|\bDiskQuota\b|: (?:No space left on device|Disk quota exceeded)")
"""In the words of zig, of Clang, and of the linker."""
_WORDLESS = (-signal.SIGBUS, -signal.SIGABRT)
"""How they end where they write through memory for which the disk has no room, and where zig cannot write what it was about to end with."""
_LITTLE_ROOM = 64 << 20

# Oldest glibc that has the architecture and everything the runtime calls; libraries linked against its symbol versions
# load on it and on every later one.
_GLIBC = {"x86_64": "2.17", "aarch64": "2.17", "armv7": "2.17", "riscv64": "2.27"}
_ZIG_ARCHITECTURES = {"armv7": "arm"}
_ZIG_CPUS = {"armv7": "cortex_a7", "riscv64": "baseline_rv64"}


@cache
def zig_executable() -> Path:
    """The ``zig`` program.

    Raises:
        IngotError: UNAVAILABLE, the ``ziglang`` wheel is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        program = Path(location) / ("zig.exe" if os.name == "nt" else "zig")
        if program.exists():
            return program
    raise IngotError(
        ErrorCode.UNAVAILABLE,
        "the linker is not installed",
        expected="the Python package ziglang",
        remedy=f"Install the compiler's dependencies: {install_command('compiler')}.",
    )


def cache_directory() -> Path:
    """Where compiled pieces that many models share are kept: ``INGOT_CACHE_DIR``, else ``~/.cache/ingot``."""
    configured = os.environ.get("INGOT_CACHE_DIR")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ingot"


def min_glibc(target: Target) -> str:
    """Oldest glibc that loads libraries for ``target``; empty when it does not use glibc."""
    return _GLIBC[target.architecture] if "gnu" in target.triple.rsplit("-", 1)[-1] else ""


def zig_target(target: Target, *, static: bool = False) -> tuple[str, ...]:
    """The ``-target`` and ``-mcpu`` arguments for the C parts of a model.

    The C parts use the baseline of the architecture: kernels carry the features of the cpu, and the check for them must
    itself run everywhere. ``static`` asks for musl, whose programs need nothing on the device.

    Raises:
        IngotError: INVALID_TARGET, not Linux, or of an ABI that nothing is linked for.
    """
    words = target.triple.split("-")
    if "linux" not in words:
        raise IngotError(
            ErrorCode.INVALID_TARGET,
            "libraries are linked for Linux only",
            field="target",
            expected="a triple with 'linux', such as aarch64-linux-gnu",
            received=target.triple,
            remedy="Compile for a Linux triple.",
        )
    library, abi = _environment(target, words[-1] if words[-1] != "linux" else "gnu")
    environment = f"musl{abi}" if static or library == "musl" else f"gnu{abi}.{_GLIBC[target.architecture]}"
    architecture = _ZIG_ARCHITECTURES.get(target.architecture, target.architecture)
    cpu = _ZIG_CPUS.get(target.architecture, "baseline")
    return ("-target", f"{architecture}-linux-{environment}", f"-mcpu={cpu}")


def _environment(target: Target, name: str) -> tuple[str, str]:
    """The C library, ``gnu`` or ``musl``, and on 32-bit ARM whether floats travel in its registers: ``eabihf``, else ``eabi``."""
    found = re.fullmatch(r"(gnu|musl)(eabi(?:hf)?)?", name)
    if found and bool(found[2]) == (target.architecture == "armv7"):
        return found[1], found[2] or ""
    known = ("gnueabihf", "gnueabi", "musleabihf", "musleabi") if target.architecture == "armv7" else ("gnu", "musl")
    raise IngotError(
        ErrorCode.INVALID_TARGET,
        f"no libraries are linked for the ABI {name!r} of {target.architecture}",
        field="target",
        expected=f"a triple that ends with one of {', '.join(known)}",
        received=target.triple,
        remedy="Compile for the ABI that the system on the device has.",
    )


def run_zig(arguments: Sequence[str], directory: Path, *, verbose: bool = False, alone: bool = False) -> str:
    """Run ``zig`` in ``directory``; what it prints.

    Args:
        verbose: it prints every command of the linker; files of the cache are named relative to :func:`cache_directory`.
        alone: what it makes is no use to others, and is not kept in the cache.

    Raises:
        IngotError: COMPILER_FAULT with the end of what zig printed, DISK_FULL, UNAVAILABLE without a cache folder.
    """
    kept = cache_directory() / "zig"
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise no_cache(error, kept) from error
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    environment = inherited | {
        "ZIG_GLOBAL_CACHE_DIR": str(kept),
        "ZIG_LOCAL_CACHE_DIR": str(directory / "zig" if alone else kept),
    }
    if verbose:
        environment["ZIG_VERBOSE_LINK"] = "1"
    command = [str(zig_executable()), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(arguments, f"no end after {_TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        if _NO_ROOM.search(said) or (done.returncode in _WORDLESS and (_is_short(directory) or _is_short(kept))):
            raise _no_room(arguments)
        raise _failed(arguments, said or f"exit status {done.returncode}")
    return done.stderr.replace(f"{kept}{os.sep}", f"{kept.name}{os.sep}")


def compile_c(text: str, target: Target, flags: Sequence[str] = ("-std=c99", "-O2")) -> bytes:
    """The object of C code for ``target``, position-independent; it may use the baseline of the architecture, and ``flags`` may
    say more (``-mavx2``).

    Raises:
        IngotError: COMPILER_FAULT, with what the C compiler says.
    """
    with tempfile.TemporaryDirectory(prefix="ingot-c-") as name:
        (Path(name) / "code.c").write_text(text)
        own = ("-c", "-fPIC", "-g0", "-fno-sanitize=all", "-fno-stack-protector", "code.c", "-o", "code.o")
        run_zig(("cc", *zig_target(target), *flags, *own), Path(name), alone=True)
        return (Path(name) / "code.o").read_bytes()


def no_cache(error: OSError, folder: Path) -> IngotError:
    return IngotError(
        ErrorCode.UNAVAILABLE,
        f"the compiler's cache cannot be written: {error}",
        field="INGOT_CACHE_DIR",
        received=str(folder),
        remedy="Set INGOT_CACHE_DIR to a folder that this process may write.",
    )


def _no_room(arguments: Sequence[str]) -> IngotError:
    return IngotError(
        ErrorCode.DISK_FULL,
        f"zig {arguments[0] if arguments else ''} cannot write its files: no space left on device",
        field="linker",
        remedy="Make room on the disk of temporary files, or name another place (TMPDIR).",
    )


def _is_short(folder: Path) -> bool:
    """Whether there is less room than what is made here may take."""
    made = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < max(_LITTLE_ROOM, 2 * made)


def _failed(arguments: Sequence[str], reason: str) -> IngotError:
    return IngotError(
        ErrorCode.COMPILER_FAULT,
        f"zig {arguments[0] if arguments else ''} failed: {reason[-2000:]}",
        field="linker",
        remedy="Report this with the model and the target.",
    )
