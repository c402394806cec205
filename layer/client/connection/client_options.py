"""The options of a `Client`: their checks, and what they say about the way to Kafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pulsar_on_kafka.client.connection.connection import chosen_instance, connection_security
from pulsar_on_kafka.client.values.authentication import Authentication
from pulsar_on_kafka.client.values.errors import pulsar_errors
from pulsar_on_kafka.client.values.options import check_range, check_type, check_type_or_none, not_yet
from pulsar_on_kafka.client.values.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from pulsar_on_kafka.client.values.service_url import parse_service_url
from pulsar_on_kafka.cursor.budget import LEAST_BYTES
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.settings import KafkaSettings

DEFAULT_MAX_TOPICS: Final = 200
"""Of a pattern: each is a membership in a Kafka group, which takes 5 threads and 8 open files."""

STAND_IN_VARIABLE: Final = "POK_STAND_IN"
LOOKUP_SCHEME: Final = "pok+lookup://"
_LOOKUP_SCHEMES: Final = (LOOKUP_SCHEME, "pok+lookup+ssl://")
_YES: Final = frozenset({"", "1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The official options of `Client` and ours, but for the logger."""

    service_url: str | AutoClusterFailover | ServiceInfoProvider
    authentication: Authentication | None = field(repr=False)
    operation_timeout_seconds: int
    io_threads: int
    message_listener_threads: int
    concurrent_lookup_requests: int
    log_conf_file_path: str | None
    stats_interval_in_seconds: int
    use_tls: bool
    tls_trust_certs_file_path: str | None
    tls_allow_insecure_connection: bool
    tls_validate_hostname: bool
    connection_timeout_ms: int
    listener_name: str | None
    tls_private_key_file_path: str | None
    tls_certificate_file_path: str | None
    kafka_config: Mapping[str, str] | None = field(repr=False)
    ack_persist_interval_ms: int
    max_pattern_topics: int
    cursor_memory_limit_bytes: int
    metrics_port: int | None
    enable_transaction: bool
    stand_in: bool | None
    instance: str | None

    def check(self) -> None:
        """Raises what `Client.__init__` says, but for the security options (`kafka_settings`)."""
        check_type((str, AutoClusterFailover, ServiceInfoProvider), "service_url", self.service_url)
        if not isinstance(self.service_url, str):
            for name in ("authentication", "tls_trust_certs_file_path"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"Argument {name} is not supported when service_url is an AutoClusterFailover or "
                        f"ServiceInfoProvider; set {name} on each ServiceInfo instead"
                    )
        for name in (
            "operation_timeout_seconds",
            "io_threads",
            "message_listener_threads",
            "concurrent_lookup_requests",
            "connection_timeout_ms",
            "max_pattern_topics",
        ):
            check_type(int, name, getattr(self, name))
            check_range(name, getattr(self, name), 1)
        check_type(int, "stats_interval_in_seconds", self.stats_interval_in_seconds)
        check_range("stats_interval_in_seconds", self.stats_interval_in_seconds, 0)
        check_type(int, "ack_persist_interval_ms", self.ack_persist_interval_ms)
        check_range("ack_persist_interval_ms", self.ack_persist_interval_ms, 1, 60_000)
        check_type(int, "cursor_memory_limit_bytes", self.cursor_memory_limit_bytes)
        check_range("cursor_memory_limit_bytes", self.cursor_memory_limit_bytes, LEAST_BYTES)
        check_type_or_none(int, "metrics_port", self.metrics_port)
        check_range("metrics_port", self.metrics_port or 0, 0, 65_535)
        check_type_or_none(str, "log_conf_file_path", self.log_conf_file_path)
        check_type(bool, "use_tls", self.use_tls)
        check_type(bool, "enable_transaction", self.enable_transaction)
        check_type_or_none(bool, "stand_in", self.stand_in)
        self.stands_in()
        chosen_instance(self.instance)
        check_type_or_none(str, "listener_name", self.listener_name)
        follows = isinstance(self.service_url, str) and self.service_url.startswith(_LOOKUP_SCHEMES)
        not_yet(
            f"listener_name with another URL than {LOOKUP_SCHEME}... (Kafka's listeners have ports of their own)",
            when=self.listener_name is not None and not follows,
        )
        not_yet("log_conf_file_path (use logger)", when=self.log_conf_file_path is not None)

    def stands_in(self) -> bool:
        """Whether the client's process may take over a service's roles. Raises InvalidConfiguration."""
        if self.stand_in is not None:
            return self.stand_in
        said = os.environ.get(STAND_IN_VARIABLE, "").strip().lower()
        if said not in _YES | _NO:
            expected = ", ".join(sorted((_YES | _NO) - {""}))
            raise InvalidConfiguration(f"the environment's {STAND_IN_VARIABLE} is {said!r}, expected one of {expected}")
        return said in _YES

    def at(self, service_url: str) -> ClientOptions:
        """The same on a cluster that a map of tenants names; metrics are served once, by the client itself."""
        return replace(self, service_url=service_url, metrics_port=None, listener_name=None)

    def at_info(self, info: ServiceInfo) -> ClientOptions:
        """The same on the cluster that a provider names."""
        return replace(
            self.at(info.service_url),
            authentication=info.authentication,
            tls_trust_certs_file_path=info.tls_trust_certs_file_path,
        )

    def check_info(self, info: ServiceInfo) -> None:
        """Raises ValueError for the place of a cluster that a client of these options cannot use."""
        try:
            self.at_info(info).kafka_settings()
        except InvalidConfiguration as refused:
            raise ValueError(str(refused)) from refused

    def check_without_cluster(self) -> None:
        """What `kafka_settings` checks, before it is known which cluster it will be."""
        self.at("kafka://unknown:9092").kafka_settings()

    def service_info(self) -> ServiceInfo:
        return ServiceInfo(self.url, self.authentication, self.tls_trust_certs_file_path)

    @property
    def url(self) -> str:
        """The service URL, where no provider gives it."""
        assert isinstance(self.service_url, str)  # noqa: S101 - whoever has a provider asks that
        return self.service_url

    def kafka_settings(self) -> KafkaSettings:
        """How every librdkafka handle of the client is made.

        Raises:
            ValueError: the URL or a security option is wrong.
            InvalidConfiguration: `kafka_config` sets what is not the user's to set, or certificates come without TLS.
        """
        address = parse_service_url(self.url)
        given = dict(self.kafka_config or {})
        security = connection_security(
            tls=self.use_tls or address.tls,
            authentication=self.authentication,
            trust_certs_file_path=self.tls_trust_certs_file_path,
            allow_insecure_connection=self.tls_allow_insecure_connection,
            validate_hostname=self.tls_validate_hostname,
            private_key_file_path=self.tls_private_key_file_path,
            certificate_file_path=self.tls_certificate_file_path,
            kafka_protocol=given.get("security.protocol"),
        )
        settings = KafkaSettings(
            address.bootstrap,
            given,
            connect_timeout_ms=self.connection_timeout_ms,
            security=security,
            instance=chosen_instance(self.instance),
        )
        with pulsar_errors():
            settings.check()
        return settings
