"""Programs that run in a PID namespace of their own, with this machine's host name."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache

import psutil

REFUSED = "this user may not make PID namespaces (unshare)"
_WAYS = (("unshare",), ("unshare", "--map-root-user"))
_REST = ("--pid", "--fork", "--kill-child", "--mount-proc")
_FIRST = ("sh", "-c", '"$@"; exit $?', "sh")
"""Process 1 ignores the signals that it has no handler for, so it is not the program itself."""


@cache
def _prefix() -> tuple[str, ...] | None:
    for way in _WAYS:
        command = (*way, *_REST, *_FIRST)
        try:
            if subprocess.run([*command, "true"], capture_output=True, timeout=30, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


def are_permitted() -> bool:
    return _prefix() is not None


def in_own_pid_namespace(command: Sequence[str]) -> list[str]:
    """The command, run where its process ids begin at 1. As it is where that is not permitted."""
    return [*(_prefix() or ()), *command]


def program_of(pid: int) -> int:
    """The process id here of what a command of `in_own_pid_namespace` runs, given that of the started process."""
    below = psutil.Process(pid).children(recursive=True)
    return below[1].pid if len(below) > 1 else pid
