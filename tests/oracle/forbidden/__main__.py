"""``python -m tests.oracle.forbidden [OPERATOR ...]``: every operator of the standard, or those."""

from __future__ import annotations

import sys

from tests.oracle.forbidden.judge import accepted
from tests.oracle.forbidden.runs import published


def main(wanted: list[str]) -> int:
    """1 where something is accepted that both oracles refuse."""
    count = 0
    for case in published():
        if wanted and case.op not in wanted:
            continue
        found = accepted(case)
        count += len(found)
        print(f"{case.op} {case.name}: {len(found)}", *found[:8], sep="\n  ", flush=True)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
