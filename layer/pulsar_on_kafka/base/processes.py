"""Processes and their group memberships: detects dead processes before Kafka's session time-out."""

from __future__ import annotations

import os
import re
import socket
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import Final

from pulsar_on_kafka.base.forks import process_lock

_REMEMBERED: Final = 10_000
"""Memberships of this process that are over; Kafka's group forgets one within its session time-out."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PID: Final = re.compile("[0-9]{1,9}")
_ENDED: Final = "ended"

_over: Final[deque[str]] = deque(maxlen=_REMEMBERED)
_lock: Final = process_lock()


def this_process() -> str:
    """Host, process id, start time, boot id and namespaces: enough to detect later, on the same machine, that it is
    dead.

    Where `/proc` does not show this process under its own id the last part is empty, and its death cannot be detected.
    """
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid)}:{_machine(pid)}"


def is_dead_process(process: str) -> bool:
    """True only when it ran on this machine, in the PID namespace of this process, and is certainly gone.

    Names without boot id and namespace, from earlier versions (`host:pid:start`), are not sufficient: the same host
    name and another PID namespace (containers with the host's network, a configured host name) look alike.
    """
    _, _, rest = process.partition(":")
    pid, _, rest = rest.partition(":")
    started, _, _ = rest.partition(":")
    if not (started and _PID.fullmatch(pid) and is_of_this_machine(process)):
        return False
    now = _started(int(pid))
    return now != started if now else not _is_there(int(pid))


def is_of_this_machine(process: str) -> bool:
    """Whether it ran on this machine since its boot, in the PID namespace of this process."""
    host, _, rest = process.partition(":")
    machine = rest.rpartition(":")[2]
    return bool(machine) and host == socket.gethostname() and machine == _machine(os.getpid())


def member_client_id(base: str, session: str) -> str:
    """Client id of a group member: unique for its session, with the name of its process."""
    return f"{base}-{session[:12]}@{this_process()}"


SERVICE: Final = "pok-serve"
"""Begins the client ids of a service's memberships in the groups that share roles out."""
STAND_IN: Final = "pok-stand-in"
"""The same of a client's process that takes a service's roles while there is none."""


def stands_in(client_id: str) -> bool:
    """Whether a member of such a group is a client's process. All others are services."""
    return client_id.startswith(f"{STAND_IN}-")


def process_of(client_id: str) -> str:
    """The `this_process` name in a member's client id; '' without one."""
    return client_id.partition("@")[2]


def membership_ended(client_id: str) -> None:
    """Records that this process closed that member and no longer serves by it.

    The group may show it for a while: a member that is closed while it joins cannot send LeaveGroup.
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


@lru_cache(maxsize=1)
def _machine(own_pid: int) -> str:
    """This boot of the machine, and the namespaces of its process ids and start times; '' where they are unknown, or
    `/proc` shows those of another namespace."""
    namespaces = Path("/proc/self/ns")
    try:
        if str(Path("/proc/self").readlink()) != str(own_pid):
            return ""
        boot = _BOOT_ID.read_text().strip().replace("-", "")[:16]
        counted_in = [(namespaces / "pid").stat(), *(file.stat() for file in namespaces.glob("time"))]
    except OSError:
        return ""
    return "-".join([boot, *(str(namespace.st_ino) for namespace in counted_in)])


def _started(pid: int) -> str:
    """Start time of a process in clock ticks since boot; '' when it is not seen, `_ENDED` when it is to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    ended = fields[0] in "ZX" and fields[17] == "1"  # its last thread, not only its first
    return _ENDED if ended else fields[19]


def _is_there(pid: int) -> bool:
    """Also for one that `/proc` hides (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
