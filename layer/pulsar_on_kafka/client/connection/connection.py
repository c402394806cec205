"""The options of a `Client`: their checks, and what they say about the way to Kafka, with the official client's
arguments about TLS and login as `Security`; whose state is used there; and how a registered cluster is connected to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from pulsar_on_kafka.broker.cursor.budget import DEFAULT_BYTES, MIN_BYTES
from pulsar_on_kafka.broker.publishing.arguments import check_type, check_type_or_none, not_yet
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.values.authentication import Authentication, AuthenticationTLS
from pulsar_on_kafka.client.values.option_tables import ELSEWHERE, OptionRange, check_table
from pulsar_on_kafka.client.values.service_info import (
    AutoClusterFailover,
    ServiceInfo,
    ServiceInfoProvider,
    parse_service_url,
)
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.security import Security
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.errors import InvalidInstanceName
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE, Instance


def chosen_instance(given: str | None) -> Instance:
    """Whose state it is: as the environment's POK_INSTANCE says where nothing is `given`.

    Raises:
        ValueError: it is no string.
        InvalidConfiguration: no instance can have this name.
    """
    check_type_or_none(str, "instance", given)
    name = os.environ.get(INSTANCE_VARIABLE, "").strip() if given is None else given
    try:
        return Instance(name)
    except InvalidInstanceName as refused:
        said = f"the environment's {INSTANCE_VARIABLE}: " if given is None else ""
        raise InvalidConfiguration(f"{said}{refused}") from refused


def connection_security(
    *,
    tls: bool,
    authentication: object | None = None,
    trust_certs_file_path: str | None = None,
    allow_insecure_connection: bool = False,
    validate_hostname: bool = False,
    private_key_file_path: str | None = None,
    certificate_file_path: str | None = None,
    kafka_protocol: str | None = None,
) -> Security:
    """How to connect. As officially, the host's name is checked only when `validate_hostname` says so.

    Args:
        kafka_protocol: `security.protocol` of kafka_config, which wins over what follows from the rest.

    Raises:
        ValueError: an argument has a wrong type.
        InvalidConfiguration: certificates without TLS.
    """
    if authentication is not None and not isinstance(authentication, Authentication):
        raise ValueError("Argument authentication is expected to be either None or of type 'Authentication'")
    for name, flag in (
        ("tls_allow_insecure_connection", allow_insecure_connection),
        ("tls_validate_hostname", validate_hostname),
    ):
        check_type(bool, name, flag)
    for name, path in (
        ("tls_trust_certs_file_path", trust_certs_file_path),
        ("tls_private_key_file_path", private_key_file_path),
        ("tls_certificate_file_path", certificate_file_path),
    ):
        check_type_or_none(str, name, path)
    login = authentication.security() if authentication is not None else Security()
    options: dict[str, str] = {}
    if tls or (kafka_protocol or "").upper().endswith("SSL"):
        if tls or validate_hostname:  # kafka_config's own TLS keeps librdkafka's default, which checks
            options["ssl.endpoint.identification.algorithm"] = "https" if validate_hostname else "none"
        if allow_insecure_connection:
            options["enable.ssl.certificate.verification"] = "false"
        if trust_certs_file_path:
            options["ssl.ca.location"] = trust_certs_file_path
        if certificate_file_path:
            options["ssl.certificate.location"] = certificate_file_path
        if private_key_file_path:
            options["ssl.key.location"] = private_key_file_path
    elif "ssl.certificate.location" in login.options:
        raise InvalidConfiguration(f"{AuthenticationTLS.__name__} needs TLS: kafka+ssl://host:port")
    options.update(login.options)
    sasl = "sasl.mechanisms" in login.options
    options["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    return Security(options, login.tokens)


def peer_settings(address: ClusterAddress, secrets: Mapping[str, str]) -> KafkaSettings:
    """How to connect to a registered cluster; `secrets` are more of librdkafka's options."""
    options = {**KafkaSettings.of_use(address.kafka_config), **secrets}
    url = parse_service_url(address.service_url)
    security = connection_security(tls=url.tls, kafka_protocol=options.get("security.protocol"))
    return KafkaSettings(url.bootstrap, options, security=security, instance=Instance(address.instance))


DEFAULT_MAX_TOPICS: Final = 200
"""Of a pattern: each is a membership in a Kafka group, which takes 5 threads and 8 open files."""

STAND_IN_VARIABLE: Final = "POK_STAND_IN"
LOOKUP_SCHEME: Final = "pok+lookup://"
_LOOKUP_SCHEMES: Final = (LOOKUP_SCHEME, "pok+lookup+ssl://")
_FILES: Final = {
    "tls_trust_certs_file_path": "ssl.ca.location",
    "tls_certificate_file_path": "ssl.certificate.location",
    "tls_private_key_file_path": "ssl.key.location",
}
"""Official arguments, and the options of librdkafka that a profile may say in their place."""
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

    def check(self) -> None:
        """Raises what `Client.__init__` says, but for the security options (`kafka_settings`)."""
        check_table(self)
        if self.service_url is None and self.profile is None:
            raise ValueError("Client needs a service_url, or a profile")
        if not isinstance(self.service_url, str | None):
            if self.profile is not None:
                raise ValueError("Argument profile is not supported when service_url is a provider, which says it all")
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
        """These options with what the profile says and they do not. Raises InvalidConfiguration."""
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
        said = os.environ.get(STAND_IN_VARIABLE, "").strip().lower()
        if said not in _YES | _NO:
            expected = ", ".join(sorted((_YES | _NO) - {""}))
            raise InvalidConfiguration(f"the environment's {STAND_IN_VARIABLE} is {said!r}, expected one of {expected}")
        return said in _YES

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
