"""The broker's version, its properties, its port, and the progress receiver."""

from __future__ import annotations

import os
import random
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Final, TypeAlias

from pulsar_on_kafka.embedded.errors import EmbeddedBrokerError, PortBusy

VERSION_VARIABLE: Final = "POK_KAFKA_VERSION"
DEFAULT_VERSION: Final = "4.4.0"
_OLDEST: Final = (3, 7)


def kafka_version() -> str:
    """The version of Kafka that POK_KAFKA_VERSION names, 4.4.0 where it names none.

    Raises:
        EmbeddedBrokerError: it names none that the embedded broker can run.
    """
    reported = os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.\d+", reported, re.ASCII)
    if numbers is None or tuple(map(int, numbers.groups())) < _OLDEST:
        raise EmbeddedBrokerError(
            f"{VERSION_VARIABLE}={reported!r}: a version of Kafka from 3.7.0 on, such as {DEFAULT_VERSION}"
        )
    return reported


# Below the ports that systems give to outgoing connections. In that range a client that keeps knocking at a
# stopped broker's port can connect to itself, and the broker would find its port taken when it comes back.
_CHOICE = range(15_000, 32_000)
_ATTEMPTS = 200
_REMEMBERED = 100

_given: deque[int] = deque(maxlen=_REMEMBERED)


def free_port() -> int:
    """A port without a listener or holder now, and none of the last 100 given out. Another process may take it before
    it is used. Raises PortBusy: there is none."""
    for port in random.sample(_CHOICE, _ATTEMPTS):
        if port not in _given and _can_be_bound(port):
            _given.append(port)
            return port
    raise PortBusy(f"none of {_ATTEMPTS} random ports of {HOST} is free")


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def hold_port(port: int) -> socket.socket:
    """Keeps `free_port`, in any process, from giving out the port of a server that does not run yet, or again, until
    the result is closed. A server with SO_REUSEADDR, as each JVM's is, can listen meanwhile: that holds on Linux;
    elsewhere nothing is held. Raises PortBusy: the port has a listener."""
    held = socket.socket()
    # As the JVM does: a port whose last connections merely linger is free.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((HOST, port))
    except OSError:
        held.close()
        raise port_busy(port) from None
    if sys.platform != "linux":
        held.close()
    return held


def port_busy(port: int) -> PortBusy:
    return PortBusy(f"port {port} of {HOST} is in use: stop what listens there, or choose another port")


def require_free(port: int) -> None:
    """Raises PortBusy: the port has a listener."""
    hold_port(port).close()


def is_free(port: int) -> bool:
    """Whether the port has no listener."""
    try:
        require_free(port)
    except PortBusy:
        return False
    return True


Progress: TypeAlias = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def silent(line: str) -> None:
    """Drop the news."""


HOST = "127.0.0.1"


def common_properties() -> dict[str, str]:
    """The content of `kafka.properties`; the same for the embedded broker and for containers."""
    return parse_properties(
        resources.files("pulsar_on_kafka.embedded").joinpath("kafka.properties").read_text(encoding="utf-8")
    )


def parse_properties(text: str) -> dict[str, str]:
    """Plain `key=value` lines and `#` comments; no escapes, no continuation."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file. Values with line breaks are refused, backslashes doubled."""
    for key, value in properties.items():
        if "\n" in value or "\r" in value or "=" in key:
            raise EmbeddedBrokerError(f"broker setting {key!r}: keys without '=', values on one line, please")
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in properties.items())


def node_properties(port: int, controller_port: int, log_dir: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Everything a broker on this machine needs; `extra` wins over all of it."""
    return {
        **common_properties(),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": log_dir,
        **extra,
    }


def last_lines(file: Path, count: int, behind: int = 0) -> str:
    """The last non-empty lines, joined into one, without a Java stack's frames; "" without such a file.

    Args:
        behind: a position in bytes; earlier lines are of earlier runs.
    """
    if not file.exists():
        return ""
    lines = [line.strip() for line in file.read_bytes()[behind:].decode(errors="replace").splitlines()]
    return " | ".join([line for line in lines if line and not line.startswith(("at ", "... "))][-count:])
