"""Models behind fork(): threads stay in the parent, and nobody waits for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import os
import numpy as np
import ingot
from ingot import ir

b = ir.GraphBuilder("main")
module = ir.Module((b.function(b.exp(b.input("x", (ir.symbol("n"),)), name="y")),))
artifact = ingot.compile(module, workers=0)
x = np.ones(4, np.float32)
model = ingot.load(artifact, threads=THREADS)
model.run({"x": x})
child = os.fork()
if child == 0:
    try:
        model.run({"x": x})
        said = ""
    except ingot.IngotError as error:
        said = str(error)
    assert ("before fork()" in said) == (THREADS > 1), said
    model.close()
    with ingot.load(artifact, threads=THREADS) as again:
        again.run({"x": x})
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
model.run({"x": x})
model.close()
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_from_before_fork_is_closed_in_the_child(threads: int) -> None:
    text = CHILD.replace("THREADS", str(threads))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
