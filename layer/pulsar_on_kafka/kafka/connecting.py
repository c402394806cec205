"""Making the handles that every user of a cluster needs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.settings import KafkaSettings


def open_admin(settings: KafkaSettings, *others: Callable[[], object]) -> KafkaAdmin:
    """The admin client. Where handles log in by token the `others` are opened at the same time, elsewhere not at all.

    A handle that logs in by token takes a second to create, whatever the broker does: confluent-kafka 2.16 looks for
    its first token once a second, and at its first look it holds the GIL that the callback with the token waits for.
    Failures of the others are ignored: their users try again.

    Raises:
        InvalidOption: librdkafka refuses the configuration.
    """
    if settings.security.tokens is None:
        return KafkaAdmin(settings.common())
    with ThreadPoolExecutor(max(1, len(others)), thread_name_prefix="pok-open") as threads:
        for opened in others:
            threads.submit(opened)
        return KafkaAdmin(settings.common())


def connection_failure(bootstrap: str, within_s: float) -> str:
    """The reason why no address accepts a connection; '' when one does. librdkafka would report it after its connection
    time-out."""
    reasons = []
    for server in bootstrap.split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=within_s).close()
        except ValueError:
            reasons.append(f"{server} is not host:port")
        except OSError as error:
            reasons.append(f"{server}: {error.strerror or error}")
        else:
            return ""
    return "; ".join(reasons)
