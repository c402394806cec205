"""A service takes memory and processor time while nothing happens; these workers measure it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import psutil

from pulsar_on_kafka.admin import AdminClient

_IDLE_S: Final = 60.0
_MAKERS: Final = 8
_MB: Final = 1 << 20


def serve_idle(sdk: str, url: str, topic: str, messages: int) -> dict[str, Any]:
    """`pok serve` with all roles, a minute after it began to serve a cluster of `messages` topics.

    `rss_mb` is what is resident then, in MB of 1024 x 1024; `cpu_s` the processor time of that minute.
    """
    assert sdk == "layer"
    with AdminClient(url) as admin, ThreadPoolExecutor(_MAKERS) as makers:
        list(makers.map(lambda number: admin.create_topic(f"{topic}-{number}"), range(messages)))
    command = [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("serving "):
                raise AssertionError("pok serve does not serve")
            seen = psutil.Process(process.pid)
            before = seen.cpu_times()
            threading.Event().wait(_IDLE_S)
            after = seen.cpu_times()
            memory, threads = seen.memory_info().rss, seen.num_threads()
        finally:
            process.terminate()
    return {
        "rss_mb": round(memory / _MB, 1),
        "threads": threads,
        "cpu_s": round(after.user + after.system - before.user - before.system, 2),
    }
