"""Both latency workers share the schedule, the payload, the receiver's process and the percentiles."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.worker import RESULT

READY: Final = "READY"
STAMP: Final = struct.Struct(">Qq")  # number, nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share
_PADDING: Final = b"x" * (200 - STAMP.size)
_WARM_UP_S: Final = 2


def send_paced(messages: int, rate: int, send: Callable[[bytes], object]) -> float:
    """Call `send` `messages` times, `rate` a second. Returns the sender's largest lag behind schedule, in ms.

    A stamp is the time at which the message was *due*: a sender that is held up does not hide its own delay.
    """
    pause = threading.Event()
    start_ns = time.monotonic_ns() + 100_000_000
    worst_ns = 0
    for number in range(messages):
        due_ns = start_ns + number * 1_000_000_000 // rate
        ahead_ns = due_ns - time.monotonic_ns()
        if ahead_ns > 0:
            pause.wait(ahead_ns / 1e9)
        worst_ns = max(worst_ns, time.monotonic_ns() - due_ns)
        send(STAMP.pack(number, due_ns) + _PADDING)
    return round(worst_ns / 1e6, 2)


def percentiles(latencies_ns: Sequence[int], rate: int) -> dict[str, float]:
    """p50, p99 and the maximum in ms, without the first two seconds (a tenth, when that is less)."""
    kept = sorted(latencies_ns[min(_WARM_UP_S * rate, len(latencies_ns) // 10) :])
    return {
        "p50_ms": round(kept[len(kept) // 2] / 1e6, 3),
        "p99_ms": round(kept[min(len(kept) - 1, len(kept) * 99 // 100)] / 1e6, 3),
        "max_ms": round(kept[-1] / 1e6, 3),
    }


def collect(messages: int, rate: int, next_payloads: Callable[[], Sequence[bytes]]) -> dict[str, float]:
    """Take payloads until every number came; says READY first. Raises on a duplicate or a stranger."""
    print(READY, flush=True)
    latencies: dict[int, int] = {}
    while len(latencies) < messages:
        for payload in next_payloads():
            now_ns = time.monotonic_ns()
            number, due_ns = STAMP.unpack_from(payload)
            if number in latencies or number >= messages:
                raise ValueError(f"message {number} came twice, or was never sent")
            latencies[number] = now_ns - due_ns
    return percentiles([latencies[number] for number in range(messages)], rate)


class Receiver:
    """The receiving process of a latency cell."""

    def __init__(self, module: str, function: str, arguments: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", module, function, json.dumps(arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        self._line_starting(READY)

    def result(self) -> dict[str, Any]:
        found = json.loads(self._line_starting(RESULT)[len(RESULT) :])
        self._process.wait()
        return dict(found)

    def _line_starting(self, start: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(start):
                return line
        raise RuntimeError(f"the receiving process ended with {self._process.wait()} before it said {start.strip()}")
