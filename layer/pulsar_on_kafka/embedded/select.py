"""A run uses one of three brokers: an embedded one, one in a container, or a cluster that is there already.

`pok standalone` runs an embedded one in the foreground, which keeps its data between runs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import platformdirs

from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.embedded.broker import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.docker import DockerBroker
from pulsar_on_kafka.embedded.errors import BrokerDidNotStart, CannotRestart, EmbeddedBrokerError
from pulsar_on_kafka.embedded.settings import Progress, last_lines, to_stderr

DEFAULT_PORT: Final = 9092
_LOOK_EVERY_S: Final = 0.5


def default_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("pulsar-on-kafka", appauthor=False)) / "standalone"


def to_stdout(line: str) -> None:
    print(line, flush=True)


def run_standalone(
    data_dir: Path | None = None,
    port: int = DEFAULT_PORT,
    *,
    announce: Callable[[str], None] = to_stdout,
    progress: Progress = to_stderr,
) -> None:
    """Run a broker until SIGINT or SIGTERM, then stop it in order. To be called from the main thread.

    Args:
        data_dir: None for one per user (`default_data_dir`).
        announce: gets `Kafka is ready: kafka://127.0.0.1:<port>` once, when the broker serves.
    Raises:
        EmbeddedBrokerError: it cannot start (a busy port, no Java, ...), or ended by itself.
    """
    options = BrokerOptions(data_dir=data_dir or default_data_dir(), port=port)
    with stop_on_signals(interruptible=False) as stop, EmbeddedBroker(options, progress) as broker:
        announce(f"Kafka is ready: kafka://{broker.bootstrap}")
        while not stop.wait(_LOOK_EVERY_S):
            if not broker.is_running:
                raise BrokerDidNotStart(f"the broker ended by itself; its log ends: {last_lines(broker.log_file, 5)}")
        progress("stopping ...")


BOOTSTRAP_VARIABLE = "POK_BOOTSTRAP"
_CONNECT_TIMEOUT_S = 5.0

BrokerKind: TypeAlias = Literal["auto", "embedded", "docker", "external"]


@dataclass(frozen=True, slots=True)
class ExternalBroker:
    """A cluster of another operator: stopping, killing or pausing it raises `CannotRestart`."""

    bootstrap: str
    can_restart: bool = False

    def restart(self) -> None:
        raise CannotRestart(
            f"the cluster {self.bootstrap} of {BOOTSTRAP_VARIABLE} is not ours to be killed, paused or started again"
        )

    start = kill = pause = resume = restart


Broker: TypeAlias = EmbeddedBroker | DockerBroker | ExternalBroker
"""A running Kafka; `can_restart`: whether this process may stop it."""


@contextmanager
def open_broker(
    kind: BrokerKind = "auto", options: BrokerOptions | None = None, progress: Progress = to_stderr
) -> Iterator[Broker]:
    """A broker for the length of the `with`.

    `auto` is the cluster of POK_BOOTSTRAP when that is set and an embedded broker otherwise; `external` insists on
    POK_BOOTSTRAP. `options` are for a broker that is started here.

    Raises:
        EmbeddedBrokerError: there is no such broker; one line on what to do.
    """
    bootstrap = os.environ.get(BOOTSTRAP_VARIABLE, "")
    if kind == "external" or (kind == "auto" and bootstrap):
        yield _external(bootstrap)
    elif kind == "docker":
        with DockerBroker(options, progress) as container:
            yield container
    else:
        with EmbeddedBroker(options, progress) as embedded:
            yield embedded


def _external(bootstrap: str) -> ExternalBroker:
    if not bootstrap:
        raise EmbeddedBrokerError(f"no cluster named: set {BOOTSTRAP_VARIABLE}=host:port, or choose another broker")
    if not any(_is_reachable(address.strip()) for address in bootstrap.split(",")):
        raise EmbeddedBrokerError(
            f"no broker replies at {BOOTSTRAP_VARIABLE}={bootstrap}: start that cluster, or unset it"
        )
    return ExternalBroker(bootstrap)


def _is_reachable(address: str) -> bool:
    # Only a connection: the cluster may require TLS or a login, which belong to the client.
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True
