"""What is missing of the boundary is found out, said, and refused where it is required."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from compiler_service.boundary import state
from compiler_service.boundary.launch import REFUSED
from compiler_service.boundary.parts import PROMISES, BoundaryPart, Standing
from compiler_service.boundary.policy import Policy
from compiler_service.boundary.state import LAUNCH, require, required_parts, say_standing, standing
from compiler_service.boundary.toolchain import toolchain
from compiler_service.metrics import boundary_gauge
from compiler_service.settings import CompilerSettings
from compiler_service.stages.outcome import how_it_died
from shared_ir.errors import ErrorCode, IngotError

LACKING = Standing({BoundaryPart.FILES: "no Landlock", BoundaryPart.NETWORK: "not permitted"})


@pytest.fixture
def _lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "standing", lambda: LACKING)


def test_every_part_promises_something() -> None:
    assert set(PROMISES) == set(BoundaryPart)


def test_a_part_that_the_kernel_refuses_is_missing_with_a_reason(tmp_path: Path) -> None:
    """Inside one boundary there are no namespaces to be had for another."""
    if not standing().is_whole:
        pytest.skip(f"this kernel lacks a part of the boundary: {standing()}")
    policy = tmp_path / "policy"
    policy.write_bytes(Policy([*toolchain(), (str(tmp_path), "read")], {"processes": 64}).to_json())
    inner = [*LAUNCH, str(policy)]
    done = subprocess.run([*LAUNCH, str(policy), *inner], capture_output=True, text=True, timeout=60, check=True)
    missing = Standing.from_dict(json.loads(done.stdout)).missing
    assert set(missing) >= {BoundaryPart.NETWORK, BoundaryPart.PROCESSES}
    assert not set(missing) & {BoundaryPart.FILES, BoundaryPart.SYSTEM_CALLS, BoundaryPart.PRIVILEGES}
    assert all(missing.values())
    policy.write_bytes(Policy([*toolchain(), (str(tmp_path), "read")], required=("processes",)).to_json())
    program = [sys.executable, "-c", "print('started')"]
    refused = subprocess.run([*LAUNCH, str(policy), *inner, *program], capture_output=True, text=True, timeout=60)
    assert refused.returncode == REFUSED
    assert "processes" in refused.stderr
    assert "started" not in refused.stdout
    assert how_it_died(REFUSED, 1, 1).code is ErrorCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("landlock.version = enter.version = lambda: 0", BoundaryPart.FILES),
        ("enter.refuse_calls = seccomp.refuse_calls; seccomp.ARCHITECTURES = {}", BoundaryPart.SYSTEM_CALLS),
        ("enter.drop_privileges = lambda: privileges.prctl(-1)", BoundaryPart.PRIVILEGES),
        ("enter.why_not_permitted = lambda: 'forbidden'", BoundaryPart.NETWORK),
        ("enter.why_not_permitted = lambda: 'forbidden'", BoundaryPart.PROCESSES),
        ("enter.why_not_permitted = lambda: 'forbidden'; enter.version = lambda: 5", BoundaryPart.SIGNALS),
    ],
)
def test_kernels_that_lack_a_part(fault: str, part: BoundaryPart) -> None:
    """Each as a process on such a kernel would find it; the other parts are entered all the same."""
    script = (
        "import json; from compiler_service.boundary import enter, landlock, privileges, seccomp\n"
        "from compiler_service.boundary.policy import Policy\n"
        f"{fault}\n"
        "policy = Policy(limits={'processes': 64}); missing = enter.enter_outer(policy)\n"
        "enter.enter_inner(policy, missing); print(json.dumps(missing))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    missing = Standing.from_dict(json.loads(done.stdout)).missing
    assert missing[part]
    assert set(missing) - set(standing().missing) <= {
        part,
        BoundaryPart.NETWORK,
        BoundaryPart.PROCESSES,
        BoundaryPart.SIGNALS,
        BoundaryPart.LIMITS,
    }


@pytest.mark.slow
@pytest.mark.parametrize("module", ["compiler_service.worker", "compiler_service.server"])
def test_a_service_refuses_to_start_without_what_it_requires(module: str, tmp_path: Path) -> None:
    """Where user namespaces are used up, as in a container that forbids them."""
    outside = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", outside, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("no user namespace can be had here, to forbid others in it")
    environment = dict(os.environ, INGOT_HOME=str(tmp_path), INGOT_SANDBOX="require", INGOT_LOG_FORMAT="text")
    started = [*command, sys.executable, "-m", module]
    done = subprocess.run(started, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 1
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "processes (user namespaces are not permitted here" in said
    assert "docs/design/boundary.md" in said


def test_what_may_be_required() -> None:
    assert required_parts("best-effort") == ()
    assert set(required_parts("require")) == set(BoundaryPart)
    assert required_parts("files, system-calls") == (BoundaryPart.FILES, BoundaryPart.SYSTEM_CALLS)
    for text in ("", "all", "files,nonsense"):
        with pytest.raises(IngotError) as caught:
            required_parts(text)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    with pytest.raises(IngotError, match="INGOT_SANDBOX"):
        CompilerSettings.from_environment({"INGOT_SANDBOX": "off"})


@pytest.mark.usefixtures("_lacking")
def test_what_is_required_and_missing_refuses_to_start() -> None:
    require(())
    require((BoundaryPart.SYSTEM_CALLS,))
    with pytest.raises(IngotError, match=r"files \(no Landlock\)") as caught:
        require(tuple(BoundaryPart))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.field == "INGOT_SANDBOX"


@pytest.mark.usefixtures("_lacking")
def test_what_is_missing_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        say_standing(logging.getLogger("test"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "files (no Landlock)" in record.getMessage()


def test_a_part_counts_where_every_machine_has_it() -> None:
    gauge: Metric = boundary_gauge([Standing(), LACKING])
    values = {sample.labels["part"]: sample.value for sample in gauge.samples}
    assert values == {part.value: 0.0 if part in LACKING.missing else 1.0 for part in BoundaryPart}
