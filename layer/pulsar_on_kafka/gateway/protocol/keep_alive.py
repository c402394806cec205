"""The keep-alive of one connection: when its client gets a PING, and when it counts as gone. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

INTERVAL_S: Final = 30.0
"""An idle client gets a PING after this, and is disconnected after twice that."""


class Verdict(Enum):
    """What a connection does at the end of an interval."""

    GOES_ON = "goes on"
    PING = "ping"
    SILENT = f"nothing was heard for {2 * INTERVAL_S:g} s"
    DOES_NOT_READ = f"nothing was taken of what is there for the client for {2 * INTERVAL_S:g} s"


class KeepAlive:
    """Judges a connection at the end of each interval."""

    def __init__(self) -> None:
        self._ping_sent = False
        self._taken = 0
        self._did_not_read = False

    def judge(self, *, heard: bool, is_read: bool, waiting: int, taken: int) -> Verdict:
        """The verdict of an interval.

        Args:
            heard: a frame of the client came in it.
            is_read: the connection reads what its client sends; what is not read cannot be heard.
            waiting: bytes for the client that it has not taken yet.
            taken: bytes that it has taken since the connection began.
        """
        stands_still = waiting > 0 and taken == self._taken
        self._taken = taken
        if stands_still and self._did_not_read:
            return Verdict.DOES_NOT_READ
        self._did_not_read = stands_still
        if heard or not is_read:
            self._ping_sent = False
            return Verdict.GOES_ON
        if self._ping_sent:
            return Verdict.SILENT
        self._ping_sent = True
        return Verdict.PING
