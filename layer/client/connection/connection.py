"""The official client's arguments about TLS and login, as `Security`; whose state is used there; and how a registered
cluster is connected to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.client.values.authentication import Authentication, AuthenticationTLS
from pulsar_on_kafka.client.values.service_info import parse_service_url
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.kafka.security import Security
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.mapping.errors import InvalidInstanceName
from pulsar_on_kafka.mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka.mapping.state.instances import Instance
from pulsar_on_kafka.sending.arguments import check_type, check_type_or_none

INSTANCE_VARIABLE: Final = "POK_INSTANCE"


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
    options = {**address.kafka_config, **secrets}
    url = parse_service_url(address.service_url)
    security = connection_security(tls=url.tls, kafka_protocol=options.get("security.protocol"))
    return KafkaSettings(url.bootstrap, options, security=security, instance=Instance(address.instance))
