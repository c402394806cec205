"""A run uses one of three brokers: an embedded one, one in a container, or a cluster that is there already."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pulsar_on_kafka.embedded.broker import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.embedded.docker import DockerBroker
from pulsar_on_kafka.embedded.errors import CannotRestart, EmbeddedBrokerError
from pulsar_on_kafka.embedded.progress import Progress, to_stderr

BOOTSTRAP_VARIABLE = "POK_BOOTSTRAP"
_CONNECT_TIMEOUT_S = 5.0

BrokerKind: TypeAlias = Literal["auto", "embedded", "docker", "external"]


class Broker(Protocol):
    """A running Kafka. Where `can_restart` is False the last five raise `CannotRestart`."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def can_restart(self) -> bool: ...
    def restart(self) -> None: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ExternalBroker:
    """A cluster that somebody else runs."""

    bootstrap: str
    can_restart: bool = False

    def restart(self) -> None:
        raise self._refusal("restarted")

    def start(self) -> None:
        raise self._refusal("started")

    def kill(self) -> None:
        raise self._refusal("killed")

    def pause(self) -> None:
        raise self._refusal("paused")

    def resume(self) -> None:
        raise self._refusal("resumed")

    def _refusal(self, what: str) -> CannotRestart:
        return CannotRestart(f"the cluster {self.bootstrap} of {BOOTSTRAP_VARIABLE} is not ours to be {what}")


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
            f"nobody answers at {BOOTSTRAP_VARIABLE}={bootstrap}: start that cluster, or unset it"
        )
    return ExternalBroker(bootstrap)


def _is_reachable(address: str) -> bool:
    # Only a connection: the cluster may want TLS or a login, which are the client's to bring.
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True
