"""The metrics of several processes on one page: every sample says whose it is."""

from __future__ import annotations

from collections.abc import Mapping

_END = "# EOF"
"""Of a page in the format of OpenMetrics."""


def merged(pages: Mapping[int, str]) -> str:
    """The samples of the ``pages``, in the text formats of Prometheus or OpenMetrics (one for all), with a label ``process``."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith("# ") and line != _END:
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                samples.setdefault(family, [])
                if line not in head:
                    head.append(line)
            elif line and line != _END:
                samples.setdefault(family, []).append(_of(number, line))
    lines = [line for family in samples for line in (*heads.get(family, ()), *samples[family])]
    if any(page.rstrip().endswith(_END) for page in pages.values()):
        lines.append(_END)
    return "\n".join((*lines, ""))


def _of(number: int, line: str) -> str:
    """A sample with the label ``process``. Labels come first in what may follow a name."""
    end = line.find(" ")
    brace = line.find("{")
    if 0 <= brace < end:
        rest = line[brace + 1 :]
        return f'{line[:brace]}{{process="{number}"{"" if rest.startswith("}") else ","}{rest}'
    return f'{line[:end]}{{process="{number}"}}{line[end:]}'
