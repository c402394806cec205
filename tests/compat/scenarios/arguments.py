"""Every official argument at the edges of what it may be, and what the rarer ones do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "arguments"


def _clients(run: ScenarioRun, option: str, values: Iterable[Any]) -> None:
    for value in values:
        run.attempt(f"{option}={value!r}", lambda v=value: run.client(**{option: v}).close())  # type: ignore[misc]


def _producers(run: ScenarioRun, topic: str, option: str, values: Iterable[Any]) -> None:
    for value in values:
        run.attempt(f"{option}={value!r}", lambda v=value: run.producer(topic, **{option: v}).close())  # type: ignore[misc]


def _consumers(run: ScenarioRun, topic: str, option: str, values: Iterable[Any]) -> None:
    for value in values:
        run.attempt(f"{option}={value!r}", lambda v=value: run.consumer(topic, **{option: v}).close())  # type: ignore[misc]


@scenario(area=AREA, title="A client's numbers")
def client_numbers(run: ScenarioRun) -> None:
    _clients(run, "operation_timeout_seconds", (1, 3600))
    _clients(run, "io_threads", (1, 4))
    _clients(run, "message_listener_threads", (1, 4))
    _clients(run, "concurrent_lookup_requests", (1, 100_000))
    _clients(run, "stats_interval_in_seconds", (0, 1))
    _clients(run, "connection_timeout_ms", (1, 60_000))


@scenario(area=AREA, title="A client's texts")
def client_texts(run: ScenarioRun) -> None:
    for option in ("tls_trust_certs_file_path", "tls_private_key_file_path", "tls_certificate_file_path"):
        run.attempt(f"{option}=5", lambda o=option: run.client(**{o: 5}))  # type: ignore[misc]
    _clients(run, "tls_validate_hostname", (True, False, "no"))
    _clients(run, "tls_allow_insecure_connection", (True, "no"))


@scenario(area=AREA, title="Loggers: of Python, to the console, to a file, none")
def loggers(run: ScenarioRun) -> None:
    file = Path(run.directory) / "client.log"
    level = run.sdk.LoggerLevel.Info
    topic = run.topic()
    for name, logger in (("file", run.sdk.FileLogger(level, str(file))), ("none", None)):
        client = run.attempt(name, lambda one=logger: run.client(logger=one))  # type: ignore[misc]
        client.create_producer(topic).send(b"x")  # type: ignore[union-attr]
        client.close()  # type: ignore[union-attr]
    run.record("the file is there", file.exists())


@scenario(area=AREA, title="A producer's batching numbers")
def batching_numbers(run: ScenarioRun) -> None:
    topic = run.topic()
    _producers(run, topic, "batching_max_messages", (2, 1000))
    _producers(run, topic, "batching_max_allowed_size_in_bytes", (1, 1_000_000))
    _producers(run, topic, "batching_max_publish_delay_ms", (1, 60_000))


@scenario(area=AREA, title="A producer's queues and times")
def producer_numbers(run: ScenarioRun) -> None:
    topic = run.topic()
    _producers(run, topic, "max_pending_messages", (0, 1, 100_000))
    _producers(run, topic, "max_pending_messages_across_partitions", (0, 1))
    _producers(run, topic, "send_timeout_millis", (0, 1000))
    _producers(run, topic, "initial_sequence_id", (-1, 0, 2**40))


@scenario(area=AREA, title="A producer's texts and properties")
def producer_texts(run: ScenarioRun) -> None:
    topic = run.topic()
    _producers(run, topic, "producer_name", ("", "p", "a name with spaces / and % signs"))
    _producers(run, topic, "properties", ({}, {"a": "1"}, {"a": 1}, {1: "a"}))


@scenario(area=AREA, title="A consumer's queues and times")
def consumer_numbers(run: ScenarioRun) -> None:
    topic = run.topic()
    _consumers(run, topic, "receiver_queue_size", (0, 1, 100_000))
    _consumers(run, topic, "max_total_receiver_queue_size_across_partitions", (0, 1, 100))
    _consumers(run, topic, "broker_consumer_stats_cache_time_ms", (0, 1000))
    _consumers(run, topic, "negative_ack_redelivery_delay_ms", (0, 1, 3_600_000))
    _consumers(run, topic, "pattern_auto_discovery_period", (1, 3600))
    _consumers(run, topic, "max_pending_chunked_message", (0, 1, 1000))


@scenario(area=AREA, title="A consumer's texts, properties and switches")
def consumer_texts(run: ScenarioRun) -> None:
    topic = run.topic()
    _consumers(run, topic, "consumer_name", ("c", "a name with spaces / and % signs"))
    _consumers(run, topic, "properties", ({}, {"a": "1"}, {"a": 1}))
    _consumers(run, topic, "replicate_subscription_state_enabled", (True, "yes"))
    _consumers(run, topic, "auto_ack_oldest_chunked_message_on_queue_full", (True, "yes"))
    _consumers(run, topic, "batch_index_ack_enabled", (True, "yes"))


@scenario(area=AREA, title="Policies and enumerations of wrong types")
def consumer_policies(run: ScenarioRun) -> None:
    topic = run.topic()
    for option in ("key_shared_policy", "batch_receive_policy", "crypto_key_reader"):
        _consumers(run, topic, option, ("a text",))
    _consumers(run, topic, "crypto_failure_action", ("FAIL",))
    _consumers(run, topic, "regex_subscription_mode", ("AllTopics",))


@scenario(area=AREA, title="A reader's arguments")
def reader_arguments(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["x"])
    earliest = run.sdk.MessageId.earliest
    for option, values in (
        ("receiver_queue_size", (1, 10_000)),
        ("reader_name", ("r", 5)),
        ("subscription_role_prefix", ("prefix", 5)),
        ("is_read_compacted", (True, "yes")),
        ("schema", (None,)),
    ):
        for value in values:
            run.attempt(
                f"{option}={value!r}",
                lambda o=option, v=value: run.reader(topic, earliest, **{o: v}).close(),  # type: ignore[misc]
            )


@scenario(area=AREA, title="Wrong types that the official client notices late or never")
def noticed_late(run: ScenarioRun) -> None:
    topic = run.topic()
    _consumers(run, topic, "dead_letter_policy", ("a text",))
    earliest = run.sdk.MessageId.earliest
    run.attempt("reader_listener", lambda: run.reader(topic, earliest, reader_listener="text").close())


@scenario(area=AREA, title="A subscription's name and topics of wrong kinds")
def subscription_arguments(run: ScenarioRun) -> None:
    topic = run.topic()
    run.attempt("list with a number", lambda: run.shared_client.subscribe([topic, 5], "s"))
    run.attempt("empty list", lambda: run.shared_client.subscribe([], "s").close())
    run.attempt("tuple", lambda: run.shared_client.subscribe((topic,), "s"))
    run.attempt("the same topic twice", lambda: run.shared_client.subscribe([topic, topic], "twice").close())


@scenario(area=AREA, title="Messages: keys, times and properties at their edges")
def message_edges(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic)
    run.attempt("event time 0", lambda: producer.send(b"a", event_timestamp=0))
    run.attempt("a late event time", lambda: producer.send(b"b", event_timestamp=2**53))
    run.attempt("a long key", lambda: producer.send(b"c", partition_key="k" * 10_000))
    run.attempt("many properties", lambda: producer.send(b"d", properties={f"p{n}": "v" * 20 for n in range(200)}))
    run.attempt("an empty property", lambda: producer.send(b"e", properties={"": ""}))
    run.attempt("unicode", lambda: producer.send(b"f", partition_key="schlüssel-键", properties={"ключ": "значение"}))
    messages = run.receive(consumer, 6)
    run.record("event times", [message.event_timestamp() for message in messages[:2]])
    run.record("key", len(messages[2].partition_key()))
    run.record("properties", [len(messages[3].properties()), messages[4].properties(), messages[5].properties()])
    run.record("unicode key", messages[5].partition_key())


@scenario(area=AREA, title="disable_replication and replication_clusters of a message")
def replication_of_messages(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic)
    producer = run.producer(topic)
    run.attempt("disabled", lambda: producer.send(b"a", disable_replication=True))
    run.attempt("clusters", lambda: producer.send(b"b", replication_clusters=["standalone"]))
    run.attempt("no list", lambda: producer.send(b"c", replication_clusters="standalone"))
    run.record_messages("received", run.receive(consumer, 2))


@scenario(area=AREA, title="Arguments by position, as the official signatures have them")
def by_position(run: ScenarioRun) -> None:
    topic = run.topic()
    client = run.shared_client
    consumer = client.subscribe(topic, "s", run.sdk.ConsumerType.Shared, run.sdk.schema.BytesSchema(), None, 10)
    producer = client.create_producer(topic, "the-name", run.sdk.schema.BytesSchema(), 7)
    producer.send(b"x", {"a": "1"}, "key")
    message = run.receive(consumer, 1)[0]
    run.record("received", run.view(message, "data", "properties", "partition_key", "producer_name"))
    run.record("last sequence id", producer.last_sequence_id())
    run.record_messages("read", run.read(client.create_reader(topic, run.sdk.MessageId.earliest), 1))


@scenario(area=AREA, title="A regular expression in parts: topics of two namespaces, of other domains")
def patterns(run: ScenarioRun) -> None:
    first = run.topic("one")
    run.send(first, ["x"])
    base = first.rpartition("one")[0]
    earliest = run.sdk.InitialPosition.Earliest
    for mode in ("PersistentOnly", "AllTopics"):
        consumer = run.consumer(
            re.compile(f"{re.escape(base)}.*"),
            f"sub-{mode}",
            initial_position=earliest,
            regex_subscription_mode=getattr(run.sdk.RegexSubscriptionMode, mode),
        )
        run.record_messages(mode, run.receive(consumer, 1))
        consumer.close()
