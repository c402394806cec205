"""The process between a Python program and its broker: it ends the broker when the program is gone, however it went.

Started as a script, `python -I -S lifeline.py <program's pid> <directory to remove, or ''> <command> ...`, standard
library only. Prints the broker's pid, ends with the broker's exit status.

Why a process: PR_SET_PDEATHSIG in the program itself fires when the *thread* that started the broker ends, and exists
on Linux alone; an exit hook does not survive SIGKILL. Here the program's end shows in two ways. Standard input, a pipe
that only the program holds, ends at once; and the parent's pid changes, which is looked at twice a second because a
forked child of the program may still hold the pipe. As the JVM's parent this process can kill it without ever hitting a
recycled pid.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

_LOOK_EVERY_S = 0.5
_PR_SET_PDEATHSIG = 1


def main(program: int, directory: str, command: list[str]) -> int:
    # The one thread that starts the broker lives as long as this process, so here PDEATHSIG is sound.
    die_with_parent = _on_linux_die_with_parent()
    broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, preexec_fn=die_with_parent)
    print(broker.pid, flush=True)
    gone = threading.Event()
    watch = threading.Thread(target=_watch, args=(program, directory, broker, gone), daemon=True)
    watch.start()
    status = broker.wait()
    if gone.is_set():
        watch.join()
    return abs(status)


def _on_linux_die_with_parent() -> Callable[[], object] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(program: int, directory: str, broker: subprocess.Popen[bytes], gone: threading.Event) -> None:
    while os.getppid() == program:
        readable, _, _ = select.select([0], [], [], _LOOK_EVERY_S)
        if readable and not os.read(0, 1):
            break
    gone.set()
    broker.kill()
    broker.wait()
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
