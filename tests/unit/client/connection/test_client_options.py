"""Arguments of a client are refused before anything touches the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka import exceptions
from pulsar_on_kafka.client.consumer.consumer_opening import inbox_capacity
from pulsar_on_kafka_mapping.state.instances import INSTANCE_VARIABLE

NOWHERE = "kafka://127.0.0.1:1"


@pytest.fixture
def client() -> Iterator[pulsar.Client]:
    made = pulsar.Client(NOWHERE)
    yield made
    made.close()


@pytest.mark.parametrize(
    "url",
    ["fakeServiceUrl", None, "", "kafka://", "kafka://host", "kafka://host:0", "kafka://host:99999", "http://host:9092",
     "kafka://host:9092,", "kafka:/host:9092", 5, "kafka://a b:9092", "kafka://host:9092/x"],
)  # fmt: skip
def test_a_url_that_is_none_is_a_value_error(url: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the official client says no more
        pulsar.Client(url)


def test_a_pulsar_url_is_explained() -> None:
    with pytest.raises(ValueError, match="kafka://host:9092"):
        pulsar.Client("pulsar://localhost:6650")


@pytest.mark.parametrize(
    "url", ["kafka://localhost:9092", "kafka://a.b-c_d:1,10.0.0.1:65535", "kafka://[::1]:9092", "kafka://host:9092/"]
)
def test_a_url_that_is_one_touches_no_network(url: str) -> None:
    pulsar.Client(url).close()


@pytest.mark.parametrize(
    "option",
    [{"operation_timeout_seconds": "x"}, {"operation_timeout_seconds": 1.5}, {"io_threads": "x"},
     {"message_listener_threads": None}, {"concurrent_lookup_requests": "x"}, {"connection_timeout_ms": "x"},
     {"use_tls": "x"}, {"use_tls": 1}, {"authentication": 5j},
     {"tls_trust_certs_file_path": 5}, {"log_conf_file_path": 5}, {"listener_name": 5},
     {"stats_interval_in_seconds": "x"}, {"logger": 5}],
    ids=str,
)  # fmt: skip
def test_a_client_option_of_a_wrong_type_is_a_value_error(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        pulsar.Client(NOWHERE, **option)


@pytest.mark.parametrize("name", ["foo", "kafka_configs"])
def test_an_unknown_keyword_is_a_type_error(client: pulsar.Client, name: str) -> None:
    unknown: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=name):
        pulsar.Client(NOWHERE, **unknown)
    with pytest.raises(TypeError, match=name):
        client.create_producer("t", **unknown)
    with pytest.raises(TypeError, match=name):
        client.subscribe("t", "s", **unknown)


@pytest.mark.parametrize(
    "name", ["bootstrap.servers", "group.id", "enable.auto.commit", "partition.assignment.strategy"]
)
def test_kafka_config_may_not_set_what_the_guarantees_rest_on(name: str) -> None:
    with pytest.raises(pulsar.InvalidConfiguration, match=re.escape(name)):
        pulsar.Client(NOWHERE, kafka_config={name: "x"})


@pytest.mark.parametrize(
    ("option", "named"),
    [({"listener_name": "x"}, "listener_name"), ({"log_conf_file_path": "x"}, "log_conf_file_path")],
    ids=str,
)  # fmt: skip
def test_client_options_of_a_later_version_say_so(option: dict[str, Any], named: str) -> None:
    with pytest.raises(exceptions.NotSupported, match=named):
        pulsar.Client(NOWHERE, **option)


@pytest.mark.parametrize(
    "option",
    [{"topic": 5}, {"topic": None}, {"producer_name": 5}, {"schema": 5}, {"initial_sequence_id": "x"},
     {"send_timeout_millis": "x"}, {"compression_type": 1}, {"max_pending_messages": "x"},
     {"max_pending_messages_across_partitions": "x"}, {"block_if_queue_full": 1}, {"batching_enabled": 1},
     {"batching_max_messages": "x"}, {"batching_max_allowed_size_in_bytes": "x"},
     {"batching_max_publish_delay_ms": "x"}, {"batching_type": 1}, {"properties": 5},
     {"access_mode": 1}, {"chunking_enabled": 1}, {"lazy_start_partitioned_producers": 1}, {"message_router": 5}],
    ids=str,
)  # fmt: skip
def test_a_producer_option_of_a_wrong_type_is_a_value_error(client: pulsar.Client, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        client.create_producer(**{"topic": "t", **option})


@pytest.mark.parametrize(
    "option",
    [{"topic": 5}, {"subscription_name": 5}, {"subscription_name": None}, {"consumer_type": 1}, {"schema": 5},
     {"message_listener": 5}, {"receiver_queue_size": "x"}, {"consumer_name": 5},
     {"max_total_receiver_queue_size_across_partitions": "x"}, {"broker_consumer_stats_cache_time_ms": "x"},
     {"unacked_messages_timeout_ms": "x"}, {"negative_ack_redelivery_delay_ms": "x"}, {"properties": 5},
     {"initial_position": 1}, {"is_read_compacted": 1}, {"start_message_id_inclusive": 1},
     {"pattern_auto_discovery_period": "x"}, {"regex_subscription_mode": 1}, {"max_pending_chunked_message": "x"},
     {"batch_index_ack_enabled": 1}, {"crypto_failure_action": 1},
     {"auto_ack_oldest_chunked_message_on_queue_full": 1}, {"dead_letter_policy": 5j},
     {"unacked_messages_timeout_ms": 9999}, {"unacked_messages_timeout_ms": -1},
     {"negative_ack_redelivery_backoff": 5}],
    ids=str,
)  # fmt: skip
def test_a_consumer_option_of_a_wrong_type_is_a_value_error(client: pulsar.Client, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        client.subscribe(**{"topic": "t", "subscription_name": "s", **option})


@pytest.mark.parametrize(
    "option", [{"replicate_subscription_state_enabled": 1}, {"properties": {"a": 1}}, {"properties": {1: "a"}}], ids=str
)
def test_what_the_official_client_hands_on_unchecked_is_a_type_error(
    client: pulsar.Client, option: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match=next(iter(option))):
        client.subscribe(**{"topic": "t", "subscription_name": "s", **option})


@pytest.mark.parametrize("topic", ["a/b", "", "a/b/c/d/e", "foo://a/b/c", "persistent://a/b", "persistent://a/b/"])
def test_what_is_no_topic_name(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.InvalidTopicName):
        client.create_producer(topic)
    with pytest.raises(pulsar.InvalidTopicName):
        client.subscribe(topic, "s")
    with pytest.raises(pulsar.InvalidTopicName):
        client.get_topic_partitions(topic)


@pytest.mark.parametrize(
    "option",
    [{"max_pending_messages": -1}, {"send_timeout_millis": -1}, {"max_pending_messages_across_partitions": -5},
     {"initial_sequence_id": -2}],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(client: pulsar.Client, option: dict[str, Any]) -> None:
    with pytest.raises((pulsar.InvalidConfiguration, ValueError), match=next(iter(option))):
        client.create_producer("t", **option)


def test_custom_routing_needs_a_router(client: pulsar.Client) -> None:
    """The official client takes the process down (seen with 3.13.0)."""
    with pytest.raises(pulsar.InvalidConfiguration, match="message_router"):
        client.create_producer("t", message_routing_mode=pulsar.PartitionsRoutingMode.CustomPartition)


@pytest.mark.parametrize("scheme", ["JavaStringHash", 2, None, pulsar.PartitionsRoutingMode.CustomPartition])
def test_a_hashing_scheme_is_one_of_its_enumeration(client: pulsar.Client, scheme: Any) -> None:
    with pytest.raises(ValueError, match=r"hashing_scheme.*HashingScheme"):
        client.create_producer("t", hashing_scheme=scheme)


def test_a_closed_client_refuses_everything() -> None:
    client = pulsar.Client(NOWHERE)
    client.close()
    for call in (
        client.close,
        lambda: client.create_producer("t"),
        lambda: client.subscribe("t", "s"),
        lambda: client.get_topic_partitions("t"),
    ):
        with pytest.raises(pulsar.AlreadyClosed):
            call()
    client.shutdown()


def test_inbox_sizes_are_per_partition_and_bounded_over_all() -> None:
    assert inbox_capacity(1000, 50_000, 1) == 1000
    assert inbox_capacity(1000, 50_000, 3) == 3000
    assert inbox_capacity(1000, 2000, 3) == 2000
    assert inbox_capacity(0, 50_000, 3) == 0


def test_every_official_exception_and_result_is_there() -> None:
    official = pytest.importorskip("pulsar")
    for name, result in official.Result.__members__.items():
        assert int(pulsar.Result[name]) == int(result)
    for name in dir(official.exceptions):
        theirs = getattr(official.exceptions, name)
        if isinstance(theirs, type) and issubclass(theirs, official.PulsarException):
            ours = getattr(pulsar, name)
            assert issubclass(ours, pulsar.PulsarException)
            assert getattr(exceptions, name) is ours


def test_enums_are_the_official_ones() -> None:
    official = pytest.importorskip("pulsar")
    for name in (
        "BatchingType",
        "CompressionType",
        "ConsumerCryptoFailureAction",
        "ConsumerType",
        "InitialPosition",
        "KeySharedMode",
        "LoggerLevel",
        "PartitionsRoutingMode",
        "ProducerAccessMode",
        "RegexSubscriptionMode",
    ):
        theirs = {member: int(value) for member, value in getattr(official, name).__members__.items()}
        assert {member: int(value) for member, value in getattr(pulsar, name).__members__.items()} == theirs
        assert [str(v) for v in getattr(pulsar, name)] == [f"{name}.{member}" for member in theirs]


@pytest.mark.parametrize(
    "call",
    [
        "Client.__init__",
        "Client.create_producer",
        "Client.subscribe",
        "Producer.send",
        "Producer.send_async",
        "Consumer.receive",
        "Consumer.acknowledge",
        "Consumer.seek",
    ],
)
def test_parameters_have_the_official_names_and_defaults(call: str) -> None:
    import inspect

    official = pytest.importorskip("pulsar")

    def parameters(module: Any) -> dict[str, Any]:
        target = module
        for part in call.split("."):
            target = getattr(target, part)
        found = inspect.signature(target).parameters.values()
        return {p.name: p.default for p in found if p.kind is not inspect.Parameter.KEYWORD_ONLY}

    theirs, ours = parameters(official), parameters(pulsar)
    assert list(ours) == list(theirs)
    for name, default in theirs.items():
        if name not in ("schema", "service_url"):  # a profile may say the URL
            assert str(ours[name]) == str(default), name


@pytest.mark.parametrize(
    ("given", "environment", "instance"),
    [(None, None, ""), (None, " acme ", "acme"), ("other", "acme", "other"), ("", "acme", ""), (None, "", "")],
)
def test_the_instance_is_what_was_given_or_else_what_the_environment_says(
    given: str | None, environment: str | None, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment is None:
        monkeypatch.delenv(INSTANCE_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(INSTANCE_VARIABLE, environment)
    made, aio = pulsar.Client(NOWHERE, instance=given), pulsar_on_kafka.asyncio.Client(NOWHERE, instance=given)
    assert made._settings.instance.name == aio._client._settings.instance.name == instance
    assert (made._settings.identity == pulsar.Client(NOWHERE, instance="")._settings.identity) == (instance == "")


def test_a_name_that_no_instance_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(exceptions.InvalidConfiguration, match=r"^instance is 'A\.b', expected 1 to 40 of a-z, 0-9"):
        pulsar.Client(NOWHERE, instance="A.b")
    with pytest.raises(ValueError, match="instance"):
        pulsar.Client(NOWHERE, instance=5)  # type: ignore[arg-type]
    monkeypatch.setenv(INSTANCE_VARIABLE, "A")
    for url in (NOWHERE, "pok+lookup://127.0.0.1:1"):
        with pytest.raises(exceptions.InvalidConfiguration, match="the environment's POK_INSTANCE: instance is 'A'"):
            pulsar.Client(url)
