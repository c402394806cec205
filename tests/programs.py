"""Programs that tests start in processes of their own: Python texts and the examples."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

from tests.pid_namespaces import in_own_pid_namespace

ROOT = Path(__file__).resolve().parents[1]


def a_program(text: str, *arguments: str, apart: bool = False) -> subprocess.Popen[str]:
    """Start a Python program that has `pulsar` and `sys.argv[1:]`; `apart`: in a PID namespace of its own."""
    command = [
        sys.executable,
        "-c",
        "import os, sys, signal\nimport pulsar_on_kafka as pulsar\n" + textwrap.dedent(text),
        *arguments,
    ]
    return subprocess.Popen(
        in_own_pid_namespace(command) if apart else command,
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def kill_program(process: subprocess.Popen[str], listening: threading.Thread) -> None:
    """Kill -9 a program whose output a thread reads. A second call does nothing."""
    if process.poll() is None:
        process.kill()
    process.wait(60)
    listening.join(60)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def run_program(text: str, *arguments: str, timeout_s: float = 60) -> tuple[int, str, str]:
    """Its status, output and errors, once it has ended."""
    process = a_program(text, *arguments)
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, out, err


def run_example(name: str, *arguments: str, timeout_s: float, bootstrap: str = "") -> str:
    """What a file of `examples/` prints, which must end well, on the cluster of `bootstrap` where it asks for one."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        env={**os.environ, "POK_BOOTSTRAP": bootstrap} if bootstrap else None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
