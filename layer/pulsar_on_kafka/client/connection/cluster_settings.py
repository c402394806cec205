"""Settings of a cluster are parsed and checked here alone, for `Client`, `AdminClient`, `pok`, Spark and services.

They follow from a service URL, options of librdkafka, the arguments about TLS and login, and the instance.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.broker.publishing.arguments import check_type, check_type_or_none
from pulsar_on_kafka.client.values.authentication import Authentication, AuthenticationTLS
from pulsar_on_kafka.client.values.service_info import parse_service_url
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.security import Security
from pulsar_on_kafka.kafka.settings import DEFAULT_CONNECT_TIMEOUT_MS, KafkaSettings
from pulsar_on_kafka_mapping.errors import InvalidInstanceName
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE, Instance


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """The official client's arguments about TLS and login."""

    authentication: object | None = field(default=None, repr=False)
    use_tls: bool = False
    """TLS also without `kafka+ssl://`."""
    trust_certs_file_path: str | None = None
    allow_insecure_connection: bool = False
    validate_hostname: bool = False
    """The host's name is checked; as officially, not by default."""
    private_key_file_path: str | None = None
    certificate_file_path: str | None = None

    def applied(self, *, tls: bool, kafka_protocol: str | None = None) -> Security:
        """Options of librdkafka for a URL with or without TLS.

        Args:
            kafka_protocol: `security.protocol` of kafka_config, which has precedence.

        Raises:
            ValueError: an argument has a wrong type.
            InvalidConfiguration: certificates without TLS.
        """
        authentication, tls = self.authentication, tls or self.use_tls
        if authentication is not None and not isinstance(authentication, Authentication):
            raise ValueError("Argument authentication is expected to be either None or of type 'Authentication'")
        check_type(bool, "tls_allow_insecure_connection", self.allow_insecure_connection)
        check_type(bool, "tls_validate_hostname", self.validate_hostname)
        check_type_or_none(str, "tls_trust_certs_file_path", self.trust_certs_file_path)
        check_type_or_none(str, "tls_private_key_file_path", self.private_key_file_path)
        check_type_or_none(str, "tls_certificate_file_path", self.certificate_file_path)
        login = authentication.security() if authentication is not None else Security()
        options: dict[str, str] = {}
        if tls or (kafka_protocol or "").upper().endswith("SSL"):
            if tls or self.validate_hostname:  # kafka_config's own TLS keeps librdkafka's default, which checks
                options["ssl.endpoint.identification.algorithm"] = "https" if self.validate_hostname else "none"
            if self.allow_insecure_connection:
                options["enable.ssl.certificate.verification"] = "false"
            if self.trust_certs_file_path:
                options["ssl.ca.location"] = self.trust_certs_file_path
            if self.certificate_file_path:
                options["ssl.certificate.location"] = self.certificate_file_path
            if self.private_key_file_path:
                options["ssl.key.location"] = self.private_key_file_path
        elif "ssl.certificate.location" in login.options:
            raise InvalidConfiguration(f"{AuthenticationTLS.__name__} needs TLS: kafka+ssl://host:port")
        options.update(login.options)
        sasl = "sasl.mechanisms" in login.options
        options["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
        return Security(options, login.tokens)


NO_SECURITY: Final = ConnectionSecurity()
"""TLS by the URL's scheme, and no login but that of kafka_config."""


def chosen_instance(given: str | None) -> Instance:
    """The instance whose state is used: the `given` one, else that of the environment's POK_INSTANCE.

    Raises:
        ValueError: it is no string.
        InvalidConfiguration: no instance can have this name.
    """
    check_type_or_none(str, "instance", given)
    name = os.environ.get(INSTANCE_VARIABLE, "").strip() if given is None else given
    try:
        return Instance(name)
    except InvalidInstanceName as refused:
        reported = f"the environment's {INSTANCE_VARIABLE}: " if given is None else ""
        raise InvalidConfiguration(f"{reported}{refused}") from refused


def cluster_settings(
    service_url: str,
    kafka_config: Mapping[str, str],
    security: ConnectionSecurity,
    instance: Instance,
    *,
    connect_timeout_ms: int = DEFAULT_CONNECT_TIMEOUT_MS,
) -> KafkaSettings:
    """Settings of every librdkafka handle on a cluster, and the instance whose state is used there.

    Raises:
        ValueError: the URL or a security argument is wrong.
        InvalidConfiguration: certificates without TLS.
        InvalidOption: `kafka_config` sets a reserved option.
    """
    address, options = parse_service_url(service_url), dict(kafka_config)
    settings = KafkaSettings(
        address.bootstrap,
        options,
        connect_timeout_ms=connect_timeout_ms,
        security=security.applied(tls=address.tls, kafka_protocol=options.get("security.protocol")),
        instance=instance,
    )
    settings.check()
    return settings


def peer_settings(address: ClusterAddress, secrets: Mapping[str, str]) -> KafkaSettings:
    """Settings of a registered cluster; `secrets` are further options of librdkafka. Raises as `cluster_settings`."""
    options = {**KafkaSettings.of_use(address.kafka_config), **secrets}
    return cluster_settings(address.service_url, options, NO_SECURITY, Instance(address.instance))
