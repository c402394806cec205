"""`broker_transport_options` of the transport, and the parts of a broker's URL."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pulsar_on_kafka.broker.publishing.arguments import check_range, check_type
from pulsar_on_kafka.client.values.authentication import AuthenticationBasic
from pulsar_on_kafka.client.values.dead_letter_policy import ConsumerDeadLetterPolicy

DEFAULT_PORT: Final = 9092
DEFAULT_NAMESPACE: Final = "public/default"
MAX_PRIORITY: Final = 9
"""The highest priority of a message that kombu passes on."""

_OF_KOMBU: Final = frozenset(
    {
        "body_encoding", "callback", "client_properties", "connect_retries_timeout", "deadletter_queue", "errback",
        "interval_max", "interval_start", "interval_step", "max_retries", "on_revive", "polling_interval",
        "retry_errors",
    }
)  # fmt: skip
"""Options that kombu and Celery read themselves."""


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """The options of this transport.

    `confirm_publish`: whether a publish waits until every in-sync replica has the message; messages of delivery mode
    1 (transient), such as events, never wait. `partitions`: of a new queue's topic; 0: one, not partitioned.
    `subscription`: the name of each queue's subscription. `receiver_queue_size`: messages of each topic that wait in
    the worker, beyond those that Celery prefetches; None: as many as the prefetch count, at most 1,000.
    `requeue_delay_ms`: the time from a rejection with `requeue` to the redelivery. `max_redeliver_count`: redeliveries
    of a message before it becomes a dead letter; None: no limit. `dead_letter_topic`: by default
    `<topic>-<subscription>-DLQ`. `priority_steps`: priorities that have a topic of their own, in queues with a
    `max_priority`. `client`: further arguments of `pulsar_on_kafka.Client`.

    Raises:
        ValueError: an option is unknown, or has a wrong type or value.
        InvalidConfiguration: a number is out of range.
    """

    confirm_publish: bool = True
    partitions: int = 0
    subscription: str = "kombu"
    receiver_queue_size: int | None = None
    requeue_delay_ms: int = 0
    max_redeliver_count: int | None = None
    dead_letter_topic: str | None = None
    priority_steps: Sequence[int] = (0, 3, 6, 9)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_type(bool, "confirm_publish", self.confirm_publish)
        check_type(str, "subscription", self.subscription)
        for name, most in (("partitions", 8192), ("requeue_delay_ms", 86_400_000), ("receiver_queue_size", 1_000_000)):
            value = getattr(self, name)
            if value is not None:
                check_type(int, name, value)
                check_range(name, value, 1 if name == "receiver_queue_size" else 0, most)
        steps = tuple(self.priority_steps)
        if not steps or steps[0] != 0 or list(steps) != sorted(set(steps)) or steps[-1] > MAX_PRIORITY:
            raise ValueError(f"priority_steps must ascend from 0 to at most {MAX_PRIORITY}, got {list(steps)}")
        if self.dead_letter_topic is not None and self.max_redeliver_count is None:
            raise ValueError("dead_letter_topic needs max_redeliver_count")
        self.dead_letter_policy()

    def dead_letter_policy(self) -> ConsumerDeadLetterPolicy | None:
        """The dead letter policy of each consumer; None without a limit."""
        if self.max_redeliver_count is None:
            return None
        return ConsumerDeadLetterPolicy(self.max_redeliver_count, self.dead_letter_topic)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> TransportOptions:
        """The options of `broker_transport_options`, without those that kombu reads itself."""
        own = {each.name for each in fields(cls)}
        for name in options:
            if name not in own and name not in _OF_KOMBU:
                near = get_close_matches(name, own, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(own))}"
                raise ValueError(f"broker_transport_options: {name!r} is no option of pulsar-on-kafka://{hint}")
        return cls(**{name: value for name, value in options.items() if name in own})


class KombuAddress(NamedTuple):
    """The cluster and the namespace that a URL names, and the arguments of its login."""

    service_url: str
    namespace: str
    security: Mapping[str, Any]


def broker_address(connection: Any) -> KombuAddress:
    """The address that a `kombu.Connection` names: `pulsar-on-kafka://[user:password@]host[:port][/tenant/namespace]`,
    or with `pulsar-on-kafka+ssl://` for TLS. `broker_use_ssl` is True, or has `ca_certs` and `cert_reqs`.

    Raises:
        ValueError: the namespace has not two parts, or `broker_use_ssl` has another key.
    """
    host, port, path = connection.hostname or "localhost", connection.port or DEFAULT_PORT, connection.virtual_host
    user, password, tls = connection.userid, connection.password, connection.ssl
    if "://" in host:  # kombu leaves a URL with a '+' as it is
        parts = urlsplit(host)
        if parts.scheme != "ssl":
            raise ValueError(f"the URL's scheme is pulsar-on-kafka+{parts.scheme}, expected pulsar-on-kafka[+ssl]")
        host, port, path = parts.hostname or "localhost", parts.port or DEFAULT_PORT, parts.path
        user, password = unquote(parts.username or "") or user, unquote(parts.password or "") or password
        tls = tls or True
    namespace = (path or "").strip("/") or DEFAULT_NAMESPACE
    if namespace.count("/") != 1:
        raise ValueError(f"the path of the broker's URL is {path!r}, expected tenant/namespace")
    security: dict[str, Any] = {} if user is None else {"authentication": AuthenticationBasic(user, password or "")}
    security |= _tls_arguments(tls)
    return KombuAddress(f"kafka{'+ssl' if tls else ''}://{host}:{port}", namespace, security)


def _tls_arguments(tls: Any) -> dict[str, Any]:
    if not isinstance(tls, Mapping):
        return {}
    unknown = set(tls) - {"ca_certs", "cert_reqs"}
    if unknown:
        raise ValueError(
            f"broker_use_ssl has {', '.join(sorted(unknown))}, expected ca_certs and cert_reqs; a client's certificate "
            "is broker_transport_options['client']['authentication']"
        )
    verified = tls.get("cert_reqs", ssl.CERT_REQUIRED) != ssl.CERT_NONE
    security: dict[str, Any] = {"tls_allow_insecure_connection": not verified, "tls_validate_hostname": verified}
    if "ca_certs" in tls:
        security["tls_trust_certs_file_path"] = tls["ca_certs"]
    return security
