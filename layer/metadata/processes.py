"""Processes and their group memberships: who is certainly gone, before Kafka's session time-out says so."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from pathlib import Path
from typing import Final

_REMEMBERED: Final = 10_000
"""Memberships of this process that are over; Kafka's group forgets one within its session time-out."""

_over: Final[deque[str]] = deque(maxlen=_REMEMBERED)
_lock: Final = threading.Lock()


def this_process() -> str:
    """Host, process id and start time: enough to know later, on the same host, that it is dead."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_dead_process(process: str) -> bool:
    """True only when it ran on this host and is certainly gone."""
    host, _, rest = process.rpartition(":")
    host, _, pid = host.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return _started(int(pid)) != rest


def member_client_id(base: str, session: str) -> str:
    """Client id of a group member: unique for its session, and tells its process."""
    return f"{base}-{session[:12]}@{this_process()}"


SERVICE: Final = "pok-serve"
"""Begins the client ids of a service's memberships in the groups that share duties out."""
STAND_IN: Final = "pok-stand-in"
"""The same of a client's process that does a service's duties while there is none."""


def stands_in(client_id: str) -> bool:
    """Whether a member of such a group is a client's process. Whoever is not is a service."""
    return client_id.startswith(f"{STAND_IN}-")


def process_of(client_id: str) -> str:
    """What `this_process` was for a member; '' for a client id that does not tell."""
    return client_id.partition("@")[2]


def membership_ended(client_id: str) -> None:
    """This process closed that member and serves nothing by it any more.

    The group may show it for a while: a member that is closed while it joins cannot say good-bye.
    """
    with _lock:
        _over.append(client_id)


def is_over(client_id: str) -> bool:
    """The member with this client id serves nothing: its process is dead, or is this one and has closed it."""
    _, separator, process = client_id.partition("@")
    if not separator:
        return False
    if process == this_process():
        with _lock:
            return client_id in _over
    return is_dead_process(process)


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; '' when there is no such process (or no /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
