"""`pok` in a terminal of 80 columns and 24 lines."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE_S, until

COLUMNS, LINES = 80, 24
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\([A-B]")


class Terminal:
    """What a program shows in it, and keys that are pressed in it."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self._fd = fd
        self.process = process
        self.raw = ""

    @property
    def text(self) -> str:
        """All that was shown so far, without what moves and colours it."""
        while select.select([self._fd], [], [], 0)[0]:
            try:
                got = os.read(self._fd, 65536)
            except OSError:  # the program has ended
                break
            if not got:
                break
            self.raw += got.decode(errors="replace")
        return _CODES.sub("", self.raw).replace("\r", "")

    def shows(self, words: str) -> str:
        """Wait for these words behind what was there when `forget` was called."""
        until(lambda: words in self.text, lambda: f"{words!r} in:\n{self.text[-4000:]}")
        return self.text

    def press(self, keys: str) -> None:
        """From now on `text` is what is shown behind this."""
        self.text  # noqa: B018 - what came so far was before
        self.raw = ""
        os.write(self._fd, keys.encode())

    def ends(self) -> int:
        until(lambda: self.text is not None and self.process.poll() is not None, "the end of pok", PATIENCE_S)
        code = self.process.returncode
        assert code is not None
        return code


@contextmanager
def pok_in_terminal(url: str, *arguments: str) -> Iterator[Terminal]:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsar_on_kafka.cli", "--url", url, *arguments],
        stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
