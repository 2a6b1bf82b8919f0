"""The C runtime under sanitizers and valgrind, and its view of the machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from compiler_service.compiler.codegen.toolchain.link import NATIVE, RUNTIME_SOURCES
from compiler_service.compiler.codegen.toolchain.zig import cache_directory, zig_executable
from tests.native_growing import GROWING_KERNELS, GROWING_SYMBOLS, growing_plan
from tests.native_models import INNER, KERNELS, WIDTH, build_model, toy_weights

DRIVER = Path(__file__).with_name("native_driver.c")
GROWING_DRIVER = Path(__file__).with_name("native_driver_growing.c")
POOL_DRIVER = Path(__file__).with_name("native_driver_pool.c")
PARTS_DRIVER = Path(__file__).with_name("native_driver_parts.c")
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels, entry object and integer-valued weights of the toy model."""
    directory = tmp_path_factory.mktemp("native")
    (directory / "entry.o").write_bytes(build_model().objects["entry"])
    (directory / "kernels.c").write_text(KERNELS)
    weights = bytearray(toy_weights())
    matrix = np.rint(np.frombuffer(weights, np.float32, INNER * WIDTH, 64) * 3)
    weights[64 : 64 + matrix.nbytes] = matrix.astype(np.float32).tobytes()
    (directory / "weights.bin").write_bytes(weights)
    return directory


def compiler(sanitizer: str) -> list[str]:
    """gcc where there is one, else zig, which lacks the address sanitizer's library."""
    gcc = shutil.which("gcc")
    if gcc:
        return [gcc, *WARNINGS]
    if sanitizer == "address":
        pytest.skip("no gcc on this machine, and zig has no address sanitizer")
    return [str(zig_executable()), "cc", *WARNINGS, "-Wno-c11-extensions"]


@pytest.fixture(scope="module")
def growing_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels and entry object of the model whose output the run sizes."""
    directory = tmp_path_factory.mktemp("growing")
    built = build_model(plan=growing_plan(), kernels=GROWING_KERNELS, symbols=GROWING_SYMBOLS)
    (directory / "entry.o").write_bytes(built.objects["entry"])
    (directory / "kernels.c").write_text(GROWING_KERNELS)
    return directory


def build_driver(folder: Path, sanitizer: str, driver: Path = DRIVER) -> Path:
    program = folder / f"driver-{sanitizer or 'plain'}"
    if program.exists():
        return program
    sources = [str(NATIVE / source) for source in RUNTIME_SOURCES]
    checks = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else []
    command = [*compiler(sanitizer), "-g", "-O1", "-pthread", f"-I{NATIVE}", *checks]
    kept = str(cache_directory() / "zig")
    done = subprocess.run(
        [*command, *sources, str(driver), "kernels.c", "entry.o", "-o", str(program)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return program


def run(*command: str | Path) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.strip()


SANITIZERS = ["", *(pytest.param(s, marks=pytest.mark.slow) for s in ("thread", "address", "undefined"))]


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_every_function_on_several_threads(folder: Path, sanitizer: str) -> None:
    assert run(build_driver(folder, sanitizer), "run", folder / "weights.bin") == "ok"


def test_denormal_results_of_kernels_are_zeros(folder: Path) -> None:
    assert run(build_driver(folder, ""), "denormals", folder / "weights.bin") == "ok"


@pytest.mark.slow
def test_no_leak_and_no_uninitialised_read(folder: Path) -> None:
    valgrind = shutil.which("valgrind")
    if not valgrind:
        pytest.skip("valgrind is not installed")
    flags = ["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]
    assert run(valgrind, *flags, build_driver(folder, ""), "run", folder / "weights.bin") == "ok"


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_memory_that_the_run_sizes(growing_folder: Path, sanitizer: str) -> None:
    assert run(build_driver(growing_folder, sanitizer, GROWING_DRIVER)) == "ok"


@pytest.mark.slow
def test_no_leak_of_memory_that_the_run_sizes(growing_folder: Path) -> None:
    valgrind = shutil.which("valgrind")
    if not valgrind:
        pytest.skip("valgrind is not installed")
    flags = ["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]
    assert run(valgrind, *flags, build_driver(growing_folder, "", GROWING_DRIVER)) == "ok"


def build_alone(folder: Path, sanitizer: str, *sources: Path) -> Path:
    """A program of C sources and nothing that was generated."""
    program = folder / "driver"
    checks = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else []
    command = [
        *compiler(sanitizer),
        "-g",
        "-O1",
        "-pthread",
        f"-I{NATIVE}",
        *checks,
        *map(str, sources),
        "-o",
        str(program),
    ]
    kept = str(cache_directory() / "zig")
    environment = {"PATH": "/usr/bin:/bin", "ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_tasks_run_once_whoever_comes_late(tmp_path: Path, sanitizer: str) -> None:
    assert run(build_alone(tmp_path, sanitizer, NATIVE / "thread_pool.c", NATIVE / "cpu_count.c", POOL_DRIVER)) == "ok"


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_parts_are_opened_run_and_closed(tmp_path: Path, sanitizer: str) -> None:
    sources = [NATIVE / source for source in RUNTIME_SOURCES]
    assert run(build_alone(tmp_path, sanitizer, *sources, PARTS_DRIVER)) == "ok"


def test_child_of_fork_is_refused_not_hung(folder: Path) -> None:
    assert run(build_driver(folder, ""), "fork", folder / "weights.bin") == "ok"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 0),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "100000 100000\n"}, 1),
        ("0::/host/path/of/container\n", {"cpu.max": "400000 100000\n"}, 4),
        (
            "11:memory:/x\n4:cpu,cpuacct:/pod\n",
            {"cpu/pod/cpu.cfs_quota_us": "150000\n", "cpu/pod/cpu.cfs_period_us": "50000\n"},
            3,
        ),
        ("4:cpu,cpuacct:/pod\n", {"cpu/pod/cpu.cfs_quota_us": "-1\n", "cpu/pod/cpu.cfs_period_us": "50000\n"}, 0),
        ("2:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0),
        ("nonsense\n::\n0::/\n", {"cpu.max": "garbage"}, 0),
    ],
)
def test_cgroup_quota(folder: Path, tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    root = tmp_path / "cgroup"
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "membership").write_text(membership)
    assert run(build_driver(folder, ""), "cpus", tmp_path / "membership", root) == str(expected)


def test_affinity_counts(folder: Path) -> None:
    assert run(build_driver(folder, ""), "cpus", folder / "none", folder) == "0"  # no cgroups: no limit


def test_missing_cpu_feature(folder: Path) -> None:
    program = build_driver(folder, "")
    flags = next(
        (line.split(":")[1].split() for line in Path("/proc/cpuinfo").read_text().splitlines() if "flags" in line), []
    )
    if not flags:
        pytest.skip("this CPU lists no x86 flags")
    known = {
        "sse4_2": "sse4.2",
        "avx2": "avx2",
        "avx512f": "avx512f",
        "amx_tile": "amx-tile",
        "avx512_fp16": "avx512fp16",
    }
    for flag, feature in known.items():
        assert run(program, "missing", f"sse2,not-a-feature,{feature}") == ("nothing" if flag in flags else feature)
    assert run(program, "missing", "") == "nothing"
