"""Bad arguments and things that are not there: under which name each fails."""

from __future__ import annotations

from typing import Any, Final

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "errors"

_OFFICIAL: Final = """
AlreadyClosed AuthenticationError AuthorizationError BrokerMetadataError BrokerPersistenceError ChecksumError
ConnectError ConsumerAssignError ConsumerBusy ConsumerNotFound ConsumerNotInitialized CryptoError
CumulativeAcknowledgementNotAllowedError ErrorGettingAuthenticationData IncompatibleSchema Interrupted
InvalidConfiguration InvalidMessage InvalidTopicName InvalidTxnStatusError InvalidUrl LookupError
MemoryBufferIsFull MessageTooBig NotAllowedError NotConnected OperationNotSupported
ProducerBlockedQuotaExceededError ProducerBlockedQuotaExceededException ProducerBusy ProducerFenced
ProducerNotInitialized ProducerQueueIsFull ReadError ServiceUnitNotReady SubscriptionNotFound Timeout
TooManyLookupRequestException TopicNotFound TopicTerminated TransactionConflict
TransactionCoordinatorNotFoundError TransactionNotFound UnknownError UnsupportedVersionError
"""


@scenario(area=AREA, title="Service URLs that are none")
def service_urls(run: ScenarioRun) -> None:
    for name, url in (("text", "fakeServiceUrl"), ("None", None), ("empty", ""), ("number", 1)):
        run.attempt(name, lambda u=url: run.client_at(u))  # type: ignore[misc]


@scenario(area=AREA, title="Nobody at the address")
def nobody_there(run: ScenarioRun) -> None:
    scheme = run.service_url.partition("://")[0]
    client = run.client_at(f"{scheme}://127.0.0.1:1", operation_timeout_seconds=3, connection_timeout_ms=1000)
    run.attempt("producer", lambda: client.create_producer("t"))
    run.attempt("consumer", lambda: client.subscribe("t", "s"))


@scenario(area=AREA, title="Options of a client of wrong types")
def client_options(run: ScenarioRun) -> None:
    for option, value in (
        ("operation_timeout_seconds", "5"),
        ("io_threads", "1"),
        ("message_listener_threads", None),
        ("concurrent_lookup_requests", 1.5),
        ("authentication", "token"),
        ("use_tls", "yes"),
        ("logger", "log"),
        ("no_such_option", 1),
    ):
        run.attempt(option, lambda o=option, v=value: run.client(**{o: v}))  # type: ignore[misc]


@scenario(area=AREA, title="Options of a producer of wrong types")
def producer_options(run: ScenarioRun) -> None:
    topic = run.topic()
    for option, value in (
        ("producer_name", 5),
        ("initial_sequence_id", "0"),
        ("send_timeout_millis", "30000"),
        ("compression_type", "LZ4"),
        ("max_pending_messages", 1.5),
        ("block_if_queue_full", 1),
        ("batching_enabled", "yes"),
        ("batching_max_messages", None),
        ("properties", "a=b"),
        ("schema", "bytes"),
        ("message_routing_mode", 1),
        ("no_such_option", 1),
    ):
        run.attempt(option, lambda o=option, v=value: run.producer(topic, **{o: v}))  # type: ignore[misc]
    run.attempt("topic", lambda: run.shared_client.create_producer(5))
    run.attempt("no topic", lambda: run.shared_client.create_producer(None))


@scenario(area=AREA, title="Options of a consumer of wrong types")
def consumer_options(run: ScenarioRun) -> None:
    topic = run.topic()
    for option, value in (
        ("consumer_type", "Shared"),
        ("receiver_queue_size", "5"),
        ("consumer_name", 5),
        ("unacked_messages_timeout_ms", "1"),
        ("negative_ack_redelivery_delay_ms", None),
        ("properties", ["a"]),
        ("initial_position", "Earliest"),
        ("schema", None),
        ("start_message_id_inclusive", "no"),
        ("no_such_option", 1),
    ):
        run.attempt(option, lambda o=option, v=value: run.shared_client.subscribe(topic, "s", **{o: v}))  # type: ignore[misc]
    run.attempt("topic", lambda: run.shared_client.subscribe(5, "s"))
    run.attempt("subscription", lambda: run.shared_client.subscribe(topic, None))


@scenario(area=AREA, title="Options of a message of wrong types")
def send_options(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    for option, value in (
        ("partition_key", 5),
        ("ordering_key", b"k"),
        ("sequence_id", "1"),
        ("event_timestamp", "now"),
        ("deliver_at", "now"),
        ("deliver_after", 5),
        ("disable_replication", "no"),
    ):
        run.attempt(option, lambda o=option, v=value: producer.send(b"x", **{o: v}))  # type: ignore[misc]


@scenario(area=AREA, title="Payloads of wrong types")
def payloads(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    for name, value in (("text", "text"), ("number", 1), ("list", [1]), ("bytearray", bytearray(b"x"))):
        run.attempt(name, lambda v=value: producer.send(v))  # type: ignore[misc]


@scenario(area=AREA, title="Names of topics that are none")
def topic_names(run: ScenarioRun) -> None:
    names: tuple[Any, ...] = ("", "a/b", "persistent://", "persistent://public/default/", "what://public/default/t")
    for name in names:
        run.attempt(f"producer on {name!r}", lambda n=name: run.shared_client.create_producer(n))  # type: ignore[misc]
        run.attempt(f"consumer on {name!r}", lambda n=name: run.shared_client.subscribe(n, "s"))  # type: ignore[misc]


@scenario(area=AREA, title="Tenants and namespaces that do not exist")
def unknown_namespaces(run: ScenarioRun) -> None:
    for name in ("public/no-such-namespace/t", "no-such-tenant/default/t"):
        run.attempt(f"producer on {name}", lambda n=name: run.shared_client.create_producer(f"persistent://{n}"))  # type: ignore[misc]
        run.attempt(f"consumer on {name}", lambda n=name: run.shared_client.subscribe(f"persistent://{n}", "s"))  # type: ignore[misc]


@scenario(area=AREA, title="Acknowledging what is no message")
def acknowledge_nonsense(run: ScenarioRun) -> None:
    consumer = run.consumer(run.topic())
    for name, value in (("text", "x"), ("None", None), ("number", 5)):
        run.attempt(f"acknowledge {name}", lambda v=value: consumer.acknowledge(v))  # type: ignore[misc]
        run.attempt(f"cumulative {name}", lambda v=value: consumer.acknowledge_cumulative(v))  # type: ignore[misc]
        run.attempt(f"negative {name}", lambda v=value: consumer.negative_acknowledge(v))  # type: ignore[misc]


@scenario(area=AREA, title="receive: time-outs and wrong arguments")
def receive(run: ScenarioRun) -> None:
    consumer = run.consumer(run.topic())
    run.attempt("nothing there", lambda: consumer.receive(50))
    run.attempt("0 ms", lambda: consumer.receive(0))
    run.attempt("text", lambda: consumer.receive("100"))


@scenario(area=AREA, title="An empty subscription name")
def empty_subscription(run: ScenarioRun) -> None:
    run.attempt("subscribe", lambda: run.consumer(run.topic(), ""))


@scenario(area=AREA, title="Numbers outside their ranges")
def ranges(run: ScenarioRun) -> None:
    topic = run.topic()
    run.attempt("max_pending_messages", lambda: run.producer(topic, max_pending_messages=-1))
    run.attempt("across partitions", lambda: run.producer(topic, max_pending_messages_across_partitions=-1))
    run.attempt("batching_max_messages", lambda: run.producer(topic, batching_max_messages=0))


@scenario(area=AREA, title="Negative numbers that the official client takes")
def negative_numbers(run: ScenarioRun) -> None:
    topic = run.topic()
    run.attempt("send_timeout_millis", lambda: run.producer(topic, send_timeout_millis=-1))
    run.attempt("receiver_queue_size", lambda: run.consumer(topic, receiver_queue_size=-1))


@scenario(area=AREA, title="All official exceptions are there, under one base")
def exceptions(run: ScenarioRun) -> None:
    base = run.sdk.PulsarException
    missing = [name for name in _OFFICIAL.split() if not issubclass(getattr(run.sdk, name, int), base)]
    elsewhere = [
        name for name in _OFFICIAL.split() if getattr(run.sdk.exceptions, name, None) is not getattr(run.sdk, name, 0)
    ]
    run.record("missing", missing)
    run.record("not in exceptions", elsewhere)


@scenario(area=AREA, title="Numbers of results")
def results(run: ScenarioRun) -> None:
    result = run.sdk.Result
    for name in ("Ok", "Timeout", "AlreadyClosed", "ConsumerBusy", "MessageTooBig", "Interrupted"):
        run.record(name, [int(getattr(result, name)), str(getattr(result, name))])
