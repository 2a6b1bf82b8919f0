"""Many modules to objects, in parallel child processes."""

from __future__ import annotations

import contextlib
import queue
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO, Self

from compiler_service.compiler.codegen.toolchain.frames import Header, read_frame, write_frame
from compiler_service.compiler.codegen.toolchain.machine import compile_ir
from shared_ir.errors import ErrorCode, IngotError
from shared_ir.machine.target import Target, target_to_dict

_COMMAND = (sys.executable, "-m", "compiler_service.compiler.codegen.toolchain.object_worker")


class ObjectCompiler:
    """Compiles modules for one target; a context manager.

    ``with ObjectCompiler(target, workers=2) as compiler: objects = compiler.compile({name: ir})``
    """

    def __init__(
        self, target: Target, workers: int, *, timeout: float = 300.0, dump_directory: Path | None = None
    ) -> None:
        """
        Args:
            workers: child processes; 0 compiles in this process, one module at a time.
            timeout: seconds that one module may take in a child.
            dump_directory: where the text of a module that brought LLVM down is kept (default: the system's temporary
                directory).
        """
        self._target = target
        self._workers = workers
        self._timeout = timeout
        self._dump_directory = dump_directory or Path(tempfile.gettempdir())
        self._children: queue.SimpleQueue[_Child] = queue.SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._workers > 0:
            for _ in range(self._workers):  # they start up while the caller still prepares the first module
                self._children.put(_Child(self._target))
            self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="object-compiler")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the children; modules not yet begun are dropped."""
        if self._threads is None:
            return
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._threads = None
        while not self._children.empty():
            self._children.get().close()

    def submit(self, name: str, ir: str) -> Future[bytes]:
        """The object of module ``name``, to come.

        The future raises IngotError COMPILER_FAULT when the text is invalid or LLVM aborts; ``node`` is ``name`` and the
        remedy says where the text was kept.
        """
        if self._threads is not None:
            return self._threads.submit(self._compile_in_child, name, ir)
        if self._workers > 0:
            raise RuntimeError("ObjectCompiler is used outside its context")
        future: Future[bytes] = Future()
        try:
            future.set_result(compile_ir(ir, self._target))
        except IngotError as error:
            future.set_exception(self._fault(name, ir, error))
        return future

    def as_completed(self, modules: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Pairs of name and object, each as soon as it is done.

        Raises:
            IngotError: COMPILER_FAULT, of the first module that fails.
        """
        futures = {self.submit(name, ir): name for name, ir in modules.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures:
                future.cancel()

    def compile(self, modules: Mapping[str, str]) -> dict[str, bytes]:
        """Name -> object, in the order of ``modules``.

        Raises:
            IngotError: COMPILER_FAULT, of the first module that fails.
        """
        done = dict(self.as_completed(modules))
        return {name: done[name] for name in modules}

    def _compile_in_child(self, name: str, ir: str) -> bytes:
        child = self._children.get()
        try:
            return child.compile(ir, self._timeout)
        except _ChildDied as death:
            child.close()
            child = _Child(self._target)
            raise self._fault(name, ir, IngotError(ErrorCode.COMPILER_FAULT, str(death))) from death
        except IngotError as error:
            raise self._fault(name, ir, error) from error
        finally:
            self._children.put(child)

    def _fault(self, name: str, ir: str, error: IngotError) -> IngotError:
        path = self._dump(name, ir)
        return IngotError(
            error.code,
            f"LLVM could not compile the kernel {name!r}: {error.message}",
            node=name,
            field="LLVM IR",
            remedy=f"This is a bug of the compiler. The module is kept in {path}; please report it.",
        )

    def _dump(self, name: str, ir: str) -> Path:
        safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:80]
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"ingot-{safe}-", suffix=".ll", dir=self._dump_directory, delete=False
        ) as file:
            file.write(ir)
        return Path(file.name)


class _ChildDied(Exception):
    """The child ended, hung or broke the protocol; says how."""


class _Child:
    """One worker process and the pipes to it."""

    def __init__(self, target: Target) -> None:
        self._target = target_to_dict(target)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._is_ready = False
        with contextlib.suppress(OSError):  # a child that died at once is found out by the first compile
            self._send(b"")

    def compile(self, ir: str, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        if not self._is_ready:
            self._receive(deadline)
            self._is_ready = True
        try:
            self._send(ir.encode())
        except OSError as error:
            raise _ChildDied(self._last_words()) from error
        _, body = self._receive(deadline)
        return body

    def _send(self, body: bytes) -> None:
        assert self._process.stdin is not None
        write_frame(self._process.stdin, {"target": self._target}, body)  # type: ignore[arg-type]

    def _receive(self, deadline: float) -> tuple[Header, bytes]:
        try:
            frame = read_frame(lambda count: self._read(count, deadline))
        except ValueError as error:
            raise _ChildDied(f"the compiler process sent {error}") from error
        if frame is None:
            raise _ChildDied(self._last_words())
        header, body = frame
        if header["status"] == "error":
            raise IngotError.from_dict(header["error"])
        return header, body

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        parts: list[bytes] = []
        while count > 0:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._process.kill()
                raise _ChildDied("the compiler process took too long and was ended")
            part = self._process.stdout.read(count)
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        said = next((line for line in lines if "ERROR" in line or "Assertion" in line), lines[-1] if lines else "")
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"the compiler process ended with {how}" + (f": {said}" if said else "")

    def close(self) -> None:
        self._process.kill()  # idle, it holds nothing; an interpreter that ends by itself takes a sixth of a second for it
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
