"""What is found out about the machine that this process runs on."""

from __future__ import annotations

import pytest

from compiler_service.compiler.codegen.toolchain.host import cpu_of, host_target
from shared_ir.machine.target import parse_target


@pytest.mark.parametrize(
    ("named", "flags", "expected"),
    [
        ("rocketlake", {"amx-tile": True}, "sapphirerapids"),
        ("rocketlake", {"amx-tile": False}, "rocketlake"),
        ("graniterapids", {"amx-tile": True}, "graniterapids"),
        ("znver5", {"avx512f": True}, "znver5"),
    ],
)
def test_a_cpu_is_at_least_what_its_features_tell(named: str, flags: dict[str, bool], expected: str) -> None:
    assert cpu_of(named, flags) == expected


def test_the_host_is_a_target_like_others() -> None:
    host = host_target()
    assert parse_target(str(host)) == host
