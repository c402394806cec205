"""`broker_transport_options` and URLs of Celery's transport are checked, and name what is wrong."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from kombu import Connection

import pulsar_on_kafka.integrations.celery  # noqa: F401 - registers the scheme
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.integrations.celery.options import TransportOptions, broker_address


@pytest.mark.parametrize(
    ("url", "service_url", "namespace"),
    [
        ("pulsar-on-kafka://", "kafka://localhost:9092", "public/default"),
        ("pulsar-on-kafka://host", "kafka://host:9092", "public/default"),
        ("pulsar-on-kafka://host:1234/shop/orders", "kafka://host:1234", "shop/orders"),
        ("pulsar-on-kafka+ssl://host:9093", "kafka+ssl://host:9093", "public/default"),
        ("pulsar-on-kafka+ssl://host/shop/orders", "kafka+ssl://host:9092", "shop/orders"),
    ],
)
def test_a_url_names_the_cluster_and_the_namespace(url: str, service_url: str, namespace: str) -> None:
    address = broker_address(Connection(url))
    assert (address.service_url, address.namespace) == (service_url, namespace)


def test_a_user_in_the_url_logs_in() -> None:
    assert "authentication" in broker_address(Connection("pulsar-on-kafka://ann:secret@host")).security
    assert "authentication" in broker_address(Connection("pulsar-on-kafka+ssl://ann:secret@host")).security
    assert broker_address(Connection("pulsar-on-kafka://host")).security == {}


def test_broker_use_ssl_becomes_the_client_s_tls_options() -> None:
    address = broker_address(Connection("pulsar-on-kafka://host", ssl={"ca_certs": "/ca.pem"}))
    assert address.service_url == "kafka+ssl://host:9092"
    assert address.security == {
        "tls_allow_insecure_connection": False,
        "tls_validate_hostname": True,
        "tls_trust_certs_file_path": "/ca.pem",
    }
    unverified = broker_address(Connection("pulsar-on-kafka://host", ssl={"cert_reqs": ssl.CERT_NONE}))
    assert unverified.security["tls_allow_insecure_connection"]


@pytest.mark.parametrize(
    ("url", "tls", "names"),
    [
        ("pulsar-on-kafka://host/shop", False, "'shop', expected tenant/namespace"),
        ("pulsar-on-kafka+tcp://host", False, r"pulsar-on-kafka\+tcp, expected"),
        ("pulsar-on-kafka://host", {"certfile": "a.pem"}, "broker_use_ssl has certfile"),
    ],
)
def test_a_wrong_address_is_named(url: str, tls: Any, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        broker_address(Connection(url, ssl=tls))


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        ({"visibility_timeout": 60}, ValueError, "'visibility_timeout' is no option"),
        ({"partition": 4}, ValueError, "did you mean partitions"),
        ({"partitions": -1}, InvalidConfiguration, "partitions must be 0 to 8192, got -1"),
        ({"receiver_queue_size": 0}, InvalidConfiguration, "receiver_queue_size must be 1"),
        ({"confirm_publish": 1}, ValueError, "confirm_publish"),
        ({"priority_steps": [3, 6]}, ValueError, "priority_steps must ascend from 0"),
        ({"priority_steps": [0, 10]}, ValueError, "at most 9"),
        ({"dead_letter_topic": "dead"}, ValueError, "needs max_redeliver_count"),
        ({"max_redeliver_count": 0}, ValueError, "max_redeliver_count"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], error: type[Exception], names: str) -> None:
    with pytest.raises(error, match=names):
        TransportOptions.of(options)


def test_options_that_kombu_reads_itself_are_left_to_it() -> None:
    assert TransportOptions.of({"max_retries": 3, "partitions": 4}) == TransportOptions(partitions=4)
