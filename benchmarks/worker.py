"""One measurement in a process of its own: `python -m benchmarks.worker <module> <function> <JSON arguments>`.

The result is the line of standard output that starts with RESULT; the official client logs there too.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Final

RESULT: Final = "RESULT "


class WorkerFailed(Exception):
    """A worker ended with an error or in silence; the message is its last line."""


def peak_mb() -> float:
    """The most that was ever resident in this process, in MB of 1024 x 1024."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)


def main(module: str, function: str, arguments: str) -> None:
    workers = importlib.import_module(f"benchmarks.{module}")
    result = getattr(workers, function)(**json.loads(arguments))
    print(RESULT + json.dumps({**result, "peak_mb": peak_mb()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
