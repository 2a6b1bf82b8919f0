"""Becomes another program, inside the boundary: ``python -I -S launch.py POLICY [PROGRAM ARGUMENT...]``.

Run by path, with nothing but the standard library: namespaces and file views are those of a thread, so that they must
be entered before anything starts a second one. ``POLICY`` is a file (:class:`compiler_service.boundary.policy.Policy`).
Without a program it prints which parts of the boundary are missing, as JSON.
"""

import json
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

if "compiler_service" not in sys.modules:
    # The folder that our packages lie in may hold anything: it is not to be listed, which a folder of the path is.
    found = spec_from_file_location("compiler_service", Path(__file__).parents[1] / "__init__.py")
    assert found is not None
    sys.modules["compiler_service"] = module_from_spec(found)

from compiler_service.boundary.enter import enter_inner, enter_outer
from compiler_service.boundary.parts import Standing
from compiler_service.boundary.policy import Policy

REFUSED = 96
"""Exit status: a required part of the boundary is missing."""


def close_others(kept: set[int]) -> None:
    """Every descriptor but ``kept``."""
    last = 2
    for descriptor in (*sorted(d for d in kept if d > last), os.sysconf("SC_OPEN_MAX")):
        os.closerange(last + 1, descriptor)
        last = descriptor


def main(arguments: list[str]) -> int:
    policy = Policy.from_json(Path(arguments[0]).read_bytes())
    close_others({*policy.descriptors, policy.refusal})
    missing = enter_outer(policy)
    if not policy.closes_later:
        enter_inner(policy, missing)
    program = arguments[1:]
    if not program:
        print(json.dumps(Standing(missing).to_dict()))
        return 0
    lacking = [f"{part}: {reason}" for part, reason in missing.items() if part in policy.required]
    if lacking:
        print(f"the boundary lacks what INGOT_SANDBOX requires: {'; '.join(lacking)}", file=sys.stderr)
        if policy.refusal >= 0:
            os.write(policy.refusal, b"!")
        return REFUSED
    if policy.refusal >= 0:
        os.set_inheritable(policy.refusal, False)
    return os.execv(program[0], program)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
