"""Target: everything code generation may know of the machine that will run the code.

Text form, in the manner of compiler command lines::

    llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon -l2=1048576 -cores=4
    raspberry-pi/4b                     a preset
    raspberry-pi/4b -cores=2            a preset with changes
    host -cores=2                       the machine that compiles, with changes

``str(target)`` is canonical: it omits what follows from triple, cpu and features, and parses back to an equal value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property

from shared_ir.dtype import DType
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.cpu_features import architecture_of_cpu, full_features
from shared_ir.numerals import whole_number

ARCHITECTURES = ("x86_64", "aarch64", "armv7", "riscv64")
_KIB = 1024
_MIB = 1024 * 1024
_YMM_BITS = 256
_MEMORY_BYTES = {
    **dict.fromkeys(("cortex-a7", "cortex-a53", "cortex-a55"), 2),
    **dict.fromkeys(("cortex-a15", "cortex-a17", "cortex-a57", "cortex-a72", "cortex-a73"), 3),
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake", "icelake-server"), 4),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), 4),
}
"""By cpu, rounded; 8 elsewhere. A core of a Xeon has far fewer than one of a desktop or of an EPYC: its mesh answers late and its
requests are counted. Measured on a Zen 5 (9) and a Xeon with AMX (4.5; 8 from its third level); other Xeons are taken to be alike, and
small ARM cores guessed from STREAM on a Raspberry Pi 4 (5.5 GB/s copied at 1.5 GHz)."""


@dataclass(frozen=True)
class Target:
    """One machine to compile for.

    Attributes:
        kind: the code generator: ``llvm``, or what one was registered as.
        triple: LLVM target triple, ``aarch64-linux-gnu``.
        cpu: LLVM cpu name, ``cortex-a72``.
        features: LLVM feature flags, each with its sign: ``+avx512f``.
        vector_bits: width of a SIMD register.
        vector_registers: number of SIMD registers.
        masked: whether masked vector loads and stores are cheap (AVX-512, SVE).
        l1, l2, l3: data cache sizes in bytes as seen by one core; 0 when there is none.
        cores: number of cores that a schedule should plan for.
        memory_bytes: bytes that one core receives from memory in a cycle; from its third-level cache come twice as many.
    """

    kind: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 16
    masked: bool = False
    l1: int = 32 * 1024
    l2: int = 512 * 1024
    l3: int = 0
    cores: int = 1
    memory_bytes: int = 8

    @property
    def architecture(self) -> str:
        """``x86_64``, ``aarch64``, ``armv7`` or ``riscv64``."""
        return architecture_of(self.triple)

    @cached_property
    def required_features(self) -> frozenset[str]:
        """LLVM names, unsigned, of the features that the machine must have: those of the cpu and those asked for."""
        return full_features(self.architecture, self.cpu, self.features)

    @property
    def dot4(self) -> DType | None:
        """The type of bytes that one instruction on whole vectors multiplies by signed bytes and adds up by fours in int32.

        uint8 with AVX-512 VNNI or AVX-VNNI (VPDPBUSD), int8 with the dot products of ARMv8.2 (SDOT); None where there is no such
        instruction.
        """
        have = self.required_features
        if self.architecture == "x86_64":
            wide = self.vector_bits > _YMM_BITS
            whole = {"avx512vnni", "avx512vl"} <= have if wide else bool({"avx512vnni", "avxvnni"} & have)
            return DType.UINT8 if whole else None
        return DType.INT8 if self.architecture == "aarch64" and "dotprod" in have else None

    @property
    def converts_halves(self) -> bool:
        """Whether float16 becomes float32, and the other way round, by an instruction."""
        have = self.required_features
        return self.architecture == "aarch64" or bool({"f16c", "avx512f", "fp16", "zfh", "zfhmin"} & have)

    def __str__(self) -> str:
        parts = [self.kind, f"-mtriple={self.triple}", f"-mcpu={self.cpu}"]
        if self.features:
            parts.append(f"-mattr={','.join(self.features)}")
        defaults = derive(self.kind, self.triple, self.cpu, self.features)
        for name, option in _OPTIONS.items():
            value = getattr(self, name)
            if value != getattr(defaults, name):
                parts.append(f"-{option}={int(value)}")
        return " ".join(parts)


_OPTIONS = {
    "vector_bits": "vector-bits",
    "vector_registers": "vector-registers",
    "masked": "masked",
    "l1": "l1",
    "l2": "l2",
    "l3": "l3",
    "cores": "cores",
    "memory_bytes": "memory-bytes",
}
"""Attribute -> option of the text form, in canonical order."""


_ARMV7 = re.compile(r"(?:arm|thumb)v7(?:a|l|hl|k|s|ve)?\Z")
"""Little-endian processors of profile A; those of profile M run no Linux with threads."""


def architecture_of(triple: str) -> str:
    """The architecture that a triple names.

    Raises:
        IngotError: INVALID_TARGET, an architecture that there is no code generator for.
    """
    first = triple.partition("-")[0]
    match first:
        case "x86_64" | "aarch64" | "riscv64":
            return first
        case "amd64":
            return "x86_64"
        case "arm64":
            return "aarch64"
    if _ARMV7.match(first):
        return "armv7"
    raise IngotError(
        ErrorCode.INVALID_TARGET,
        f"no code generator for the architecture of triple {triple!r}",
        field="target",
        expected=", ".join(ARCHITECTURES),
        received=first,
        remedy="Name one of these architectures in -mtriple, or use a preset (`ingot targets` lists them).",
    )


def derive(kind: str, triple: str, cpu: str, features: tuple[str, ...]) -> Target:
    """A target whose vector width, register count and masking follow from its instruction set, its memory from its cpu."""
    architecture = architecture_of(triple)
    have = full_features(architecture, cpu, features)
    bits, registers, masked = 128, 32, False
    if architecture == "x86_64":
        masked = {"avx512f", "avx512vl", "avx512bw"} <= have
        bits = 512 if "avx512f" in have else 256 if "avx" in have else 128
        registers = 32 if masked else 16
    elif architecture == "armv7":
        bits, registers = (128, 16) if "neon" in have else (64, 16)
    elif architecture == "riscv64":
        masked = "v" in have
        bits = 64 if not masked else 256 if "zvl256b" in have else 128
        registers = 32 if masked else 16  # without V a vector is a pair of scalar registers
    memory = _MEMORY_BYTES.get(cpu, Target.memory_bytes)
    return Target(
        kind, triple, cpu, features, vector_bits=bits, vector_registers=registers, masked=masked, memory_bytes=memory
    )


def _preset(triple: str, cpu: str, features: str = "", **sizes: int) -> Target:
    return replace(derive("llvm", triple, cpu, tuple(features.split())), **sizes)  # type: ignore[arg-type]


def _x86(cpu: str, features: str = "", **sizes: int) -> Target:
    return _preset("x86_64-linux-gnu", cpu, features, **sizes)


def _arm64(cpu: str, features: str = "+neon", **sizes: int) -> Target:
    return _preset("aarch64-linux-gnu", cpu, features, **sizes)


_AVX2 = "+avx2 +fma +f16c +bmi2"
_AVX512 = "+avx512f +avx512bw +avx512cd +avx512dq +avx512vl"
_RV64GC = "+m +a +f +d +c"

PRESETS: Mapping[str, tuple[Target, str]] = {
    "x86-64-v2": (_x86("x86-64-v2", "+sse4.2", l2=256 * _KIB, cores=4), "any x86-64 machine since 2009: SSE4.2"),
    "x86-64-v3": (_x86("x86-64-v3", _AVX2, l2=256 * _KIB, l3=8 * _MIB, cores=4), "x86-64 since 2013: AVX2, FMA"),
    "x86-64-v4": (_x86("x86-64-v4", _AVX512, l2=1 * _MIB, l3=16 * _MIB, cores=4), "x86-64 servers: AVX-512"),
    "intel/skylake": (_x86("skylake", _AVX2, l2=256 * _KIB, l3=8 * _MIB, cores=4), "Core 6th to 10th generation"),
    "intel/cascadelake": (_x86("cascadelake", _AVX512, l2=1 * _MIB, l3=24 * _MIB, cores=8), "Xeon 2nd generation"),
    "intel/icelake-server": (
        _x86("icelake-server", _AVX512, l1=48 * _KIB, l2=1280 * _KIB, l3=32 * _MIB, cores=8),
        "Xeon 3rd generation",
    ),
    "intel/sapphirerapids": (
        _x86("sapphirerapids", _AVX512, l1=48 * _KIB, l2=2 * _MIB, l3=64 * _MIB, cores=8),
        "Xeon 4th generation",
    ),
    "amd/zen3": (_x86("znver3", _AVX2, l3=32 * _MIB, cores=8), "EPYC 7003, Ryzen 5000"),
    "amd/zen4": (_x86("znver4", _AVX512, l2=1 * _MIB, l3=32 * _MIB, cores=8), "EPYC 9004, Ryzen 7000"),
    "amd/zen5": (_x86("znver5", _AVX512, l1=48 * _KIB, l2=1 * _MIB, l3=32 * _MIB, cores=8), "EPYC 9005, Ryzen 9000"),
    "aarch64/generic": (_arm64("generic", cores=4), "any 64-bit ARM machine: NEON"),
    "aws/graviton2": (
        _arm64("neoverse-n1", l1=64 * _KIB, l2=1 * _MIB, l3=32 * _MIB, cores=8),
        "Neoverse N1: m6g, c6g, r6g, t4g",
    ),
    "aws/graviton3": (
        _arm64("neoverse-v1", l1=64 * _KIB, l2=1 * _MIB, l3=32 * _MIB, cores=8),
        "Neoverse V1: m7g, c7g, r7g",
    ),
    "aws/graviton4": (
        _arm64("neoverse-v2", l1=64 * _KIB, l2=2 * _MIB, l3=36 * _MIB, cores=8),
        "Neoverse V2: m8g, c8g, r8g",
    ),
    "ampere/altra": (_arm64("neoverse-n1", l1=64 * _KIB, l2=1 * _MIB, l3=32 * _MIB, cores=8), "Ampere Altra"),
    "apple/m1": (_arm64("apple-m1", l1=128 * _KIB, l2=12 * _MIB, cores=4), "Apple M1 under Linux, performance cores"),
    "raspberry-pi/zero-2w": (_arm64("cortex-a53", cores=4), "Cortex-A53, 64-bit system"),
    "raspberry-pi/3b": (_arm64("cortex-a53", cores=4), "Cortex-A53, 64-bit system"),
    "raspberry-pi/4b": (_arm64("cortex-a72", l2=1 * _MIB, cores=4), "Cortex-A72, 64-bit system"),
    "raspberry-pi/5": (_arm64("cortex-a76", l1=64 * _KIB, l2=512 * _KIB, l3=2 * _MIB, cores=4), "Cortex-A76"),
    "rockchip/rk3588": (
        _arm64("cortex-a76", l1=64 * _KIB, l2=512 * _KIB, l3=3 * _MIB, cores=4),
        "Cortex-A76 cores of Rock 5, Orange Pi 5",
    ),
    "jetson/nano": (_arm64("cortex-a57", l2=2 * _MIB, cores=4), "Cortex-A57 cores of Jetson Nano"),
    "jetson/orin": (
        _arm64("cortex-a78ae", l1=64 * _KIB, l2=256 * _KIB, l3=2 * _MIB, cores=8),
        "Cortex-A78AE cores of Jetson Orin",
    ),
    "armv7/generic": (
        _preset("armv7-linux-gnueabihf", "cortex-a7", "+neon +vfp4", l2=512 * _KIB, cores=4),
        "32-bit ARM with NEON and VFPv4: Cortex-A7, A15, A17 and 32-bit systems on later cores",
    ),
    "raspberry-pi/2b": (
        _preset("armv7-linux-gnueabihf", "cortex-a7", "+neon +vfp4", l2=512 * _KIB, cores=4),
        "Cortex-A7, 32-bit system",
    ),
    "riscv64/generic": (
        _preset("riscv64-linux-gnu", "generic-rv64", _RV64GC, l2=2 * _MIB, cores=4),
        "RV64GC without vectors: VisionFive 2, HiFive",
    ),
    "riscv64/rvv": (
        _preset("riscv64-linux-gnu", "generic-rv64", f"{_RV64GC} +v", l2=512 * _KIB, cores=4),
        "RV64GCV, vectors of 128 bits or more",
    ),
    "spacemit/k1": (
        _preset("riscv64-linux-gnu", "spacemit-x60", f"{_RV64GC} +v +zvl256b", l2=512 * _KIB, cores=4),
        "SpacemiT K1 (Banana Pi F3): RVV 1.0, 256 bits",
    ),
}
"""Preset name -> target and a one-line description."""

_FEATURE = re.compile(r"[+-](?!(?:cpu)?help\Z)[A-Za-z0-9._-]+\Z")
_NAME = re.compile(r"(?!help\Z)[A-Za-z0-9._-]+\Z")
"""NOTE: LLVM prints lists where ``help`` stands in the place of a cpu or a feature."""
_NUMBERS = {option: name for name, option in _OPTIONS.items()}
_MOST_CHARACTERS = 4096
_MOST_OF_OPTION = 1 << 40
"""Bytes, bits or cores: more than any machine has."""


def resolve_target(text: str, host: Callable[[], Target]) -> Target:
    """As :func:`parse_target`; ``host``, with options after it, is the machine that ``host`` tells of, ``llvm`` without a triple has its.

    Raises:
        IngotError: INVALID_TARGET, naming the word at fault and near matches.
    """
    head, *words = _words(text) or [""]
    if head == "host":
        return _with_options(host(), _parse_options(text, words), text)
    if head in _KINDS and "mtriple" not in (options := _parse_options(text, words)):
        triple, cpu = host().triple, options.get("mcpu", "")
        if architecture_of_cpu(cpu) not in (None, architecture_of(triple)):
            message = f"{cpu} is a cpu of {architecture_of_cpu(cpu)}, and this machine is {architecture_of(triple)}"
            raise _invalid(message, text, f"-mtriple=<LLVM target triple> beside -mcpu={cpu}")
        return parse_target(f"{text} -mtriple={triple}")
    return parse_target(text)


_KINDS = {"llvm"}


def register_kind(kind: str) -> None:
    """From now on a target may begin with ``kind`` instead of ``llvm``, in this process."""
    _KINDS.add(kind)


def parse_target(text: str) -> Target:
    """The target that ``text`` names (see the module docstring), the same on every machine: ``host`` is none of them.

    Raises:
        IngotError: INVALID_TARGET; the message names the word at fault and, for names, near matches.
    """
    words = _words(text)
    if not words:
        raise _invalid("the target is empty", text, "a preset or `llvm -mtriple=... -mcpu=...`")
    head, options = words[0], _parse_options(text, words[1:])
    if head in PRESETS:
        base = PRESETS[head][0]
    elif head in _KINDS:
        if "mtriple" not in options:
            raise _invalid("the target has no -mtriple", text, "-mtriple=<LLVM target triple>")
        base = derive(head, options["mtriple"], "generic", ())
    else:
        raise _unknown(head)
    return _with_options(base, options, text)


def _words(text: str) -> list[str]:
    if len(text) > _MOST_CHARACTERS:
        raise _invalid(f"the target has {len(text)} characters", text[:80], f"at most {_MOST_CHARACTERS}")
    return text.split()


def _parse_options(text: str, words: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not equals or not value:
            raise _invalid(f"{word!r} is not an option of a target", text, "-name=value")
        if name not in ("mtriple", "mcpu", "mattr", *_NUMBERS):
            known = ", ".join(f"-{n}" for n in ("mtriple", "mcpu", "mattr", *_NUMBERS))
            raise _invalid(f"unknown target option -{name}", text, known)
        options[name] = value
    return options


def _with_options(base: Target, options: Mapping[str, str], text: str) -> Target:
    triple = options.get("mtriple", base.triple)
    cpu = options.get("mcpu", base.cpu)
    for value in (triple, cpu):
        if not _NAME.match(value):
            raise _invalid(f"{value!r} is not a triple or cpu name", text, "letters, digits, '.', '_' and '-'")
    features = tuple(options["mattr"].split(",")) if "mattr" in options else base.features
    for flag in features:
        if not _FEATURE.match(flag):
            raise _invalid(f"{flag!r} is not a feature flag", text, "-mattr=+feature,-feature")
    if {"mtriple", "mcpu", "mattr"} & options.keys():
        own = derive(base.kind, triple, cpu, features)
        base = replace(own, l1=base.l1, l2=base.l2, l3=base.l3, cores=base.cores)
    numbers = {_NUMBERS[n]: _number(n, v, text) for n, v in options.items() if n in _NUMBERS}
    changes = {n: bool(v) if n == "masked" else v for n, v in numbers.items()}
    return replace(base, **changes)  # type: ignore[arg-type]


def _number(name: str, value: str, text: str) -> int:
    least = {"l1": 0, "l2": 0, "l3": 0, "masked": 0}.get(name, 1)
    number = whole_number(value)
    if number is None or not least <= number <= _MOST_OF_OPTION:
        what = "is not a number" if number is None else "is out of range"
        raise _invalid(f"-{name}={value} {what}", text, f"an integer from {least} to {_MOST_OF_OPTION}")
    if name == "vector-bits" and (number < 64 or number & (number - 1)):
        raise _invalid(f"-vector-bits={value} is no register width", text, "a power of two of at least 64")
    return number


def _invalid(message: str, text: str, expected: str) -> IngotError:
    return IngotError(
        ErrorCode.INVALID_TARGET,
        message,
        field="target",
        expected=expected,
        received=text,
        remedy="Use a preset (`ingot targets` lists them) or `llvm -mtriple=<triple> -mcpu=<cpu> -mattr=<features>`.",
    )


def _unknown(name: str) -> IngotError:
    candidates = [*PRESETS, "host", "llvm"]
    near = difflib.get_close_matches(name, candidates, n=4, cutoff=0.5)
    near += [c for c in candidates if name and name.lower() in c and c not in near][: 4 - len(near)]
    return IngotError(
        ErrorCode.INVALID_TARGET,
        f"unknown target {name!r}",
        field="target",
        expected=f"near matches: {', '.join(near)}" if near else "a preset, `host`, or `llvm -mtriple=...`",
        received=name,
        remedy="`ingot targets` lists the presets; `llvm -mtriple=<triple> -mcpu=<cpu>` describes any other machine.",
    )


def target_to_dict(target: Target) -> dict[str, object]:
    """A JSON-ready form; :func:`target_from_dict` is its inverse."""
    return asdict(target) | {"features": list(target.features)}


def target_from_dict(data: Mapping[str, object]) -> Target:
    known = {f.name for f in fields(Target)}
    values = {k: v for k, v in data.items() if k in known}
    features = values.get("features", ())
    values["features"] = tuple(features) if isinstance(features, (list, tuple)) else ()
    return Target(**values)  # type: ignore[arg-type]
