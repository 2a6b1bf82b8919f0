"""README's section on production, as it is written, in a fresh clone, by one shell that is told of nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler_service.compiler.codegen.toolchain.zig import cache_directory
from tests.deployed.containers import Network, may_be_made
from tests.deployed.dockerfile import ROOT
from tests.deployed.locks import debian_python, pinned
from tests.deployed.roots import pip_cache, pip_settings
from tests.packaging.extras import normal

pytestmark = [
    pytest.mark.long,
    pytest.mark.services,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not may_be_made(), reason="only root may make a network of its own, where every port is free"),
]
HEADING = "## In production\n"
END = """
kill $(jobs -p)
for each in $(jobs -p); do wait "$each"; done
redis-cli -s production/redis/redis.sock shutdown
"""


def lines() -> str:
    """Everything that the section tells to type."""
    section = (ROOT / "README.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    return "".join(blocks)


@pytest.fixture
def network() -> Iterator[Network]:
    with tempfile.TemporaryDirectory(prefix="ingot-production-") as name, Network.make(Path(name), ()) as made:
        yield made


def clone(folder: Path) -> Path:
    """What a commit of this tree would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_every_line_works(network: Network) -> None:
    folder = clone(network.folder / "ingot")
    # Linking for the first time on a machine takes a minute; tests/deployed/test_compose.py goes through that.
    more = pip_settings() | {"PIP_CACHE_DIR": str(pip_cache()), "INGOT_CACHE_DIR": str(cache_directory())}
    clean = ["env", "-i", "PATH=/usr/bin:/bin", f"HOME={network.folder}", *(f"{n}={v}" for n, v in more.items())]
    install, _, rest = lines().partition("\n")
    assert install.startswith("sh scripts/install_locked.sh ")  # what needs PyPI runs beside the network
    subprocess.run([*clean, "bash", "-euxc", install], cwd=folder, check=True)
    done = network.run(*clean, "bash", "-euxc", f"cd {folder}\n{rest}{END}")
    logs = "\n".join(f"--- {path}\n{path.read_text()}" for path in folder.glob("production/logs/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    listed = json.loads(done.stdout[done.stdout.index('{\n  "components"') :])
    assert listed["bomFormat"] == "CycloneDX"
    installed = {(normal(component["name"]), component["version"]) for component in listed["components"]}
    assert installed == pinned("compiler", debian_python())
