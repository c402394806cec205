"""A client or an admin client for the length of a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pulsar_on_kafka.cli.shared.output import CommandFailed
from pulsar_on_kafka.cli.shared.settings import CONNECT_TIMEOUT_MS, OPERATION_TIMEOUT_S, Settings

if TYPE_CHECKING:
    from pulsar_on_kafka.admin import AdminClient
    from pulsar_on_kafka.client.client import Client

_LOOK_S: Final = 3.0


def admin_at(
    url: str,
    kafka_config: Mapping[str, str],
    instance: str,
    *,
    operation_timeout_seconds: float = OPERATION_TIMEOUT_S,
) -> AdminClient:
    from pulsar_on_kafka.admin import AdminClient

    return AdminClient(
        url,
        operation_timeout_seconds=operation_timeout_seconds,
        connection_timeout_ms=CONNECT_TIMEOUT_MS,
        kafka_config=kafka_config,
        instance=instance,
    )


def admin_of(settings: Settings) -> AdminClient:
    url = settings.cluster_url()
    require_listener(settings.bootstrap)
    return admin_at(url, settings.kafka_config, settings.instance)


@contextmanager
def client_of(settings: Settings) -> Iterator[Client]:
    """Closed at the end: what was acknowledged is saved, what was sent is answered."""
    if not settings.follows_tenants:  # else it goes with its tenant from cluster to cluster
        require_listener(settings.bootstrap)
    from pulsar_on_kafka.client.client import Client

    client = Client(
        settings.url,
        operation_timeout_seconds=OPERATION_TIMEOUT_S,
        connection_timeout_ms=CONNECT_TIMEOUT_MS,
        kafka_config=settings.kafka_config,
        instance=settings.instance,
    )
    try:
        yield client
    except BaseException:  # also when it is interrupted: then nothing is waited for
        client.shutdown()
        raise
    client.close()


def require_listener(bootstrap: str) -> None:
    """Reports at once the error that librdkafka would report after its connection time-out.

    Raises:
        CommandFailed: no address accepts a connection.
    """
    from pulsar_on_kafka.kafka.connecting import connection_failure

    silent = connection_failure(bootstrap, _LOOK_S)
    if silent:
        raise CommandFailed(f"no broker answers ({silent}); start one (`pok standalone`) or name yours with --url")
