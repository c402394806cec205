"""Options of a `Client`: their checks, and the settings of the cluster that follow from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pulsar_on_kafka.broker.cursor.budget import DEFAULT_BYTES, MIN_BYTES
from pulsar_on_kafka.broker.publishing.arguments import not_yet
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.cluster_settings import ConnectionSecurity, chosen_instance, cluster_settings
from pulsar_on_kafka.client.values.authentication import Authentication
from pulsar_on_kafka.client.values.option_tables import ELSEWHERE, OptionRange, check_table
from pulsar_on_kafka.client.values.service_info import (
    AutoClusterFailover,
    ServiceInfo,
    ServiceInfoProvider,
)
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE

DEFAULT_MAX_TOPICS: Final = 200
"""The default limit of a pattern's topics: each is a membership in a Kafka group, which takes 5 threads and 8 open
files."""

STAND_IN_VARIABLE: Final = "POK_STAND_IN"
LOOKUP_SCHEME: Final = "pok+lookup://"
_LOOKUP_SCHEMES: Final = (LOOKUP_SCHEME, "pok+lookup+ssl://")
_FILES: Final = {
    "tls_trust_certs_file_path": "ssl.ca.location",
    "tls_certificate_file_path": "ssl.certificate.location",
    "tls_private_key_file_path": "ssl.key.location",
}
"""Official arguments, and the librdkafka options that a profile may have in their place."""
_YES: Final = frozenset({"", "1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class _Official:
    """The official options of `Client`."""

    service_url: str | AutoClusterFailover | ServiceInfoProvider | None = None
    authentication: Annotated[Authentication | None, ELSEWHERE] = field(default=None, repr=False)
    operation_timeout_seconds: Annotated[int, OptionRange(1)] = 30
    io_threads: Annotated[int, OptionRange(1)] = 1
    message_listener_threads: Annotated[int, OptionRange(1)] = 1
    concurrent_lookup_requests: Annotated[int, OptionRange(1)] = 50000
    log_conf_file_path: str | None = None
    stats_interval_in_seconds: Annotated[int, OptionRange(0)] = 600
    use_tls: bool = False
    tls_trust_certs_file_path: Annotated[str | None, ELSEWHERE] = None
    tls_allow_insecure_connection: Annotated[bool, ELSEWHERE] = False
    tls_validate_hostname: Annotated[bool, ELSEWHERE] = False
    logger: Annotated[Any, ELSEWHERE] = None
    connection_timeout_ms: Annotated[int, OptionRange(1)] = 10000
    listener_name: str | None = None
    tls_private_key_file_path: Annotated[str | None, ELSEWHERE] = None
    tls_certificate_file_path: Annotated[str | None, ELSEWHERE] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions(_Official):
    """The official options of `Client`, and ours, which are given by keyword only."""

    kafka_config: Annotated[Mapping[str, str] | None, ELSEWHERE] = field(default=None, repr=False)
    ack_persist_interval_ms: Annotated[int, OptionRange(1, 60_000)] = 1000
    max_pattern_topics: Annotated[int, OptionRange(1)] = DEFAULT_MAX_TOPICS
    cursor_memory_limit_bytes: Annotated[int, OptionRange(MIN_BYTES)] = DEFAULT_BYTES
    metrics_port: Annotated[int | None, OptionRange(0, 65_535)] = None
    enable_transaction: bool = False
    stand_in: bool | None = None
    instance: Annotated[str | None, ELSEWHERE] = None
    tracing: Annotated[Any, ELSEWHERE] = False
    profile: str | None = None
    tune_garbage_collector: bool = False

    def check(self) -> None:
        """Raises the errors of `Client.__init__`, except for the security options (`kafka_settings`)."""
        check_table(self)
        if self.service_url is None and self.profile is None:
            raise ValueError("Client needs a service_url, or a profile")
        if not isinstance(self.service_url, str | None):
            if self.profile is not None:
                raise ValueError(
                    "Argument profile is not supported when service_url is a provider, which has all settings"
                )
            for name in ("authentication", "tls_trust_certs_file_path"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"Argument {name} is not supported when service_url is an AutoClusterFailover or "
                        f"ServiceInfoProvider; set {name} on each ServiceInfo instead"
                    )
        if not isinstance(self.tracing, bool) and not hasattr(self.tracing, "get_tracer"):
            raise ValueError(f"tracing is expected to be a bool or a TracerProvider, got {self.tracing!r:.60}")
        self.stands_in()
        chosen_instance(self.instance)
        follows = isinstance(self.service_url, str) and self.service_url.startswith(_LOOKUP_SCHEMES)
        not_yet(
            f"listener_name with another URL than {LOOKUP_SCHEME}... (Kafka's listeners have ports of their own)",
            when=self.listener_name is not None and not follows,
        )
        not_yet("log_conf_file_path (use logger)", when=self.log_conf_file_path is not None)

    def profiled(self) -> ClientOptions:
        """These options with the profile's values for missing ones. Raises InvalidConfiguration."""
        if self.profile is None:
            return self
        from pulsar_on_kafka.client.connection.profiles import Profiles  # only here: most programs have none

        with pulsar_errors():
            profile = Profiles().named(self.profile)
            config = profile.kafka_config(login=self.authentication is None)
            url = self.service_url or profile.url
        if not url:
            raise InvalidConfiguration(f"profile {self.profile!r} has no url, and no service_url is given")
        for argument, option in _FILES.items():
            if getattr(self, argument) is not None:
                config.pop(option, None)
        instance = self.instance
        if instance is None and not os.environ.get(INSTANCE_VARIABLE, "").strip():
            instance = profile.instance
        config |= self.kafka_config or {}
        options = replace(self, service_url=url, kafka_config=config, instance=instance)
        options.check()
        return options

    def stands_in(self) -> bool:
        """Whether the client's process may take over a service's roles. Raises InvalidConfiguration."""
        if self.stand_in is not None:
            return self.stand_in
        reported = os.environ.get(STAND_IN_VARIABLE, "").strip().lower()
        if reported not in _YES | _NO:
            expected = ", ".join(sorted((_YES | _NO) - {""}))
            raise InvalidConfiguration(
                f"the environment's {STAND_IN_VARIABLE} is {reported!r}, expected one of {expected}"
            )
        return reported in _YES

    def at(self, service_url: str) -> ClientOptions:
        """The same on a cluster that a map of tenants names; metrics are served once, by the client itself."""
        return replace(self, service_url=service_url, metrics_port=None, listener_name=None)

    def at_info(self, info: ServiceInfo) -> ClientOptions:
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
        """The checks of `kafka_settings`, before the cluster is known."""
        self.at("kafka://unknown:9092").kafka_settings()

    def service_info(self) -> ServiceInfo:
        return ServiceInfo(self.url, self.authentication, self.tls_trust_certs_file_path)

    @property
    def url(self) -> str:
        """The service URL, where no provider gives it."""
        assert isinstance(self.service_url, str)  # noqa: S101 - options with a provider use the provider's
        return self.service_url

    def kafka_settings(self) -> KafkaSettings:
        """Settings of every librdkafka handle of the client.

        Raises:
            ValueError: the URL or a security option is wrong.
            InvalidConfiguration: `kafka_config` sets an option that users may not set, or certificates come without
                TLS.
        """
        security = ConnectionSecurity(
            self.authentication,
            use_tls=self.use_tls,
            trust_certs_file_path=self.tls_trust_certs_file_path,
            allow_insecure_connection=self.tls_allow_insecure_connection,
            validate_hostname=self.tls_validate_hostname,
            private_key_file_path=self.tls_private_key_file_path,
            certificate_file_path=self.tls_certificate_file_path,
        )
        with pulsar_errors():
            return cluster_settings(
                self.url,
                self.kafka_config or {},
                security,
                chosen_instance(self.instance),
                connect_timeout_ms=self.connection_timeout_ms,
            )
