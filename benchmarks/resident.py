"""A worker process that stays for a whole group: `python -m benchmarks.resident <module>`.

What has to be warm to be measured (Spark's JVM) starts once. Each line of standard input is one call,
`{"function": ..., "arguments": {...}}`; the answer is a line of standard output that starts with RESULT or FAILED. It
ends with its standard input.
"""

from __future__ import annotations

import importlib
import json
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from benchmarks.worker import RESULT, WorkerFailed

_FAILED: Final = "FAILED "
_END_S: Final = 60.0


class Resident:
    """The process, as a context; it is started by the first call."""

    def __init__(self, module: str, timeout_s: float) -> None:
        """`timeout_s`: of each call."""
        self._module = module
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Resident:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stdout.close()

    def call(self, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Raises WorkerFailed; after a call that did not come back in time no other one is answered."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"function": function, "arguments": arguments}) + "\n")
            process.stdin.flush()
        except BrokenPipeError as gone:
            raise WorkerFailed(f"the process of {self._module} has ended with {process.wait()}") from gone
        while True:
            try:
                line = self._lines.get(timeout=self._timeout_s)
            except queue.Empty as late:
                process.kill()
                raise WorkerFailed(f"no result of {function} within {self._timeout_s:.0f} s") from late
            if line is None:
                raise WorkerFailed(f"the process of {self._module} ended with {process.wait()} in {function}")
            if line.startswith(_FAILED):
                raise WorkerFailed(line[len(_FAILED) :].rstrip())
            if line.startswith(RESULT):
                return dict(json.loads(line[len(RESULT) :]))

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.resident", self._module]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process,), name="resident", daemon=True)
        self._reader.start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def main(module: str) -> None:
    workers = importlib.import_module(f"benchmarks.{module}")
    for line in sys.stdin:
        called = json.loads(line)
        try:
            result = getattr(workers, called["function"])(**called["arguments"])
        except Exception as failure:
            said = [text for text in str(failure).splitlines() if text.strip()] or [""]
            print(f"{_FAILED}{type(failure).__name__}: {said[0]}", flush=True)
        else:
            print(RESULT + json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
