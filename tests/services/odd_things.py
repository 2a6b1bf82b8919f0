"""``sitecustomize`` of a process that does odd things at SIGUSR2, each of which writes in a way of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings

_TEXTS = {
    "thread": "what the thread has lost",
    "warning": "what is deprecated",
    "core": "E0000 00:00:1790000000.000000    1 ssl.cc:1] what the core says",
    "print": "what is printed",
    "child": "what a child says",
    "hidden": "what __del__ has lost",
}
ALL = tuple(_TEXTS.values())


class _Odd:
    def __del__(self) -> None:
        raise ValueError(_TEXTS["hidden"])


def do_odd_things() -> None:
    def fail() -> None:
        raise KeyError(_TEXTS["thread"])

    thread = threading.Thread(target=fail, name="odd")
    thread.start()
    thread.join()
    warnings.warn(_TEXTS["warning"], stacklevel=1)
    os.write(2, f"{_TEXTS['core']}\n".encode())
    print(_TEXTS["print"], file=sys.__stderr__, flush=True)
    subprocess.run([sys.executable, "-I", "-S", "-c", f"print({_TEXTS['child']!r})"], check=False)
    _Odd()


def main() -> None:
    if "odd" in os.environ.get("ODD_THINGS", ""):
        signal.signal(signal.SIGUSR2, lambda *_: do_odd_things())


main()
