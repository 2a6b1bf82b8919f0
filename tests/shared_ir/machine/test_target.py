"""Targets: text form, presets, errors."""

from __future__ import annotations

import pytest

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import PRESETS, Target, parse_target, resolve_target, target_from_dict, target_to_dict


def test_parses_a_command_line() -> None:
    target = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+neon")
    assert target == Target("llvm", "aarch64-linux-gnu", "cortex-a76", ("+neon",), vector_bits=128, vector_registers=32)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_a_canonical_text_that_parses_back(name: str) -> None:
    target, description = PRESETS[name]
    assert parse_target(name) == target
    assert parse_target(str(target)) == target
    assert str(parse_target(str(target))) == str(target)
    assert description
    assert target_from_dict(target_to_dict(target)) == target


@pytest.mark.parametrize("text", ["host", " host ", "host -cores=3", "host\t-l3=0  -cores=1"])
def test_the_host_takes_changes(text: str) -> None:
    host = PRESETS["amd/zen4"][0]
    assert resolve_target(text, lambda: host) == parse_target(text.replace("host", "amd/zen4"))


def test_the_host_is_asked_only_where_it_is_named() -> None:
    def away() -> Target:
        raise AssertionError

    assert resolve_target("raspberry-pi/4b -cores=2", away) == parse_target("raspberry-pi/4b -cores=2")
    for text in ("", "hosts", "host -nonsense=1", "host cores=1", "host -cores=0"):
        with pytest.raises(IngotError) as caught:
            resolve_target(text, lambda: PRESETS["amd/zen4"][0])
        assert caught.value.code is ErrorCode.INVALID_TARGET


def test_a_preset_takes_changes() -> None:
    target = parse_target("raspberry-pi/4b -cores=2 -l3=1024")
    assert (target.cpu, target.cores, target.l3) == ("cortex-a72", 2, 1024)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "bits", "registers", "masked"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64", 128, 16, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell", 256, 16, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4", 512, 32, True),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f", 256, 16, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64 -mattr=+avx2,+fma", 256, 16, False),
        ("llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+v", 128, 32, True),
    ],
)
def test_vectors_follow_from_the_instruction_set(text: str, bits: int, registers: int, masked: bool) -> None:
    target = parse_target(text)
    assert (target.vector_bits, target.vector_registers, target.masked) == (bits, registers, masked)


def test_required_features_are_those_of_the_cpu_and_the_flags() -> None:
    assert {"avx512f", "fma", "sse4.1"} <= parse_target("x86-64-v4").required_features
    without = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -mattr=-avx512f")
    assert "avx512vl" not in without.required_features
    assert {"neon", "dotprod"} <= parse_target("aws/graviton2").required_features
    assert "dotprod" not in parse_target("raspberry-pi/4b").required_features


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("raspbery-pi/4b", "raspberry-pi/4b"),
        ("graviton3", "aws/graviton3"),
        ("", "empty"),
        ("llvm -mcpu=x", "-mtriple"),
        ("llvm -mtriple=mips-linux-gnu", "mips"),
        ("llvm -mtriple=armv7eb-linux-gnueabihf", "armv7eb"),
        ("llvm -mtriple=thumbv7m-linux-gnueabihf", "thumbv7m"),
        ("llvm -mtriple=x86_64-linux-gnu -mcup=znver4", "-mcup"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=avx2", "avx2"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+help", "+help"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+cpuhelp", "+cpuhelp"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=help", "help"),
        ("llvm -mtriple=x86_64-linux-gnu -cores=0", "-cores=0 is out of range"),
        ("llvm -mtriple=x86_64-linux-gnu -cores=two", "-cores=two is not a number"),
        ("llvm -mtriple=x86_64-linux-gnu -vector-bits=100", "-vector-bits=100"),
        ("llvm -mtriple=x86_64;rm", "rm"),
        ("x86-64-v3 surplus", "surplus"),
    ],
)
def test_errors_name_the_word(text: str, word: str) -> None:
    with pytest.raises(IngotError) as caught:
        parse_target(text)
    assert caught.value.code is ErrorCode.INVALID_TARGET
    assert word in str(caught.value)
    assert caught.value.remedy


def test_memory_follows_from_the_cpu_and_can_be_told() -> None:
    server = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    assert server.memory_bytes < parse_target("amd/zen5").memory_bytes
    assert parse_target("raspberry-pi/3b").memory_bytes < parse_target("raspberry-pi/4b").memory_bytes
    told = parse_target("amd/zen5 -memory-bytes=6")
    assert told.memory_bytes == 6
    assert parse_target(str(told)) == told
