"""Closing, and using what is closed."""

from __future__ import annotations

import threading
from typing import Any

from tests.compat.harness.driver import PATIENCE_MS, ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "lifecycle"


@scenario(area=AREA, title="A closed producer")
def closed_producer(run: ScenarioRun) -> None:
    producer = run.producer(run.topic())
    producer.send(b"x")
    run.attempt("close", producer.close)
    run.attempt("send", lambda: producer.send(b"y"))
    run.attempt("flush", producer.flush)
    run.attempt("close again", producer.close)
    run.record("connected", producer.is_connected())


@scenario(area=AREA, title="A closed consumer")
def closed_consumer(run: ScenarioRun) -> None:
    consumer = run.subscribed(["1"]).consumer
    message = run.receive(consumer, 1)[0]
    run.attempt("close", consumer.close)
    run.attempt("receive", lambda: consumer.receive(100))
    run.attempt("acknowledge", lambda: consumer.acknowledge(message))
    run.attempt("seek", lambda: consumer.seek(run.sdk.MessageId.earliest))
    run.attempt("unsubscribe", consumer.unsubscribe)
    run.attempt("last id", consumer.get_last_message_id)
    run.attempt("close again", consumer.close)


@scenario(area=AREA, title="A closed client")
def closed_client(run: ScenarioRun) -> None:
    topic = run.topic()
    client = run.client()
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    run.attempt("close", client.close)
    run.attempt("producer", lambda: client.create_producer(topic))
    run.attempt("consumer", lambda: client.subscribe(topic, "s"))
    run.attempt("send", lambda: producer.send(b"x"))
    run.attempt("receive", lambda: consumer.receive(100))
    run.attempt("partitions", lambda: client.get_topic_partitions(topic))
    run.attempt("close again", client.close)
    run.attempt("shutdown", client.shutdown)


@scenario(area=AREA, title="Closing a client sends what waits and keeps what was acknowledged")
def close_keeps(run: ScenarioRun) -> None:
    topic = run.topic()
    watcher = run.consumer(topic, "watcher")
    client = run.client()
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(str(number).encode())
    for _ in range(15):
        consumer.acknowledge(consumer.receive(PATIENCE_MS))
    client.close()
    run.record_messages("sent", run.receive(watcher, 20))
    run.record_messages("not acknowledged", run.receive(run.consumer(topic), 5))


@scenario(area=AREA, title="shutdown of a client ends its producers and consumers")
def shutdown(run: ScenarioRun) -> None:
    topic = run.topic()
    client = run.client()
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    run.attempt("shutdown", client.shutdown)
    run.attempt("send", lambda: producer.send(b"x"))
    run.attempt("receive", lambda: consumer.receive(100))
    run.attempt("a new consumer elsewhere", lambda: run.consumer(topic, "s"))


@scenario(area=AREA, title="A client with nothing in it")
def empty_client(run: ScenarioRun) -> None:
    run.attempt("close", run.client().close)
    run.attempt("shutdown", run.client().shutdown)


@scenario(area=AREA, title="Several clients work beside each other")
def several_clients(run: ScenarioRun) -> None:
    topic = run.topic()
    clients = [run.client() for _ in range(3)]
    consumers = [client.subscribe(topic, f"s{index}") for index, client in enumerate(clients)]
    for index, client in enumerate(clients):
        client.create_producer(topic).send(str(index).encode())
    for consumer in consumers:
        run.record_messages("received", run.receive(consumer, 3))
    clients[0].close()
    clients[1].create_producer(topic).send(b"after")
    run.record_messages("after", run.receive(consumers[2], 1))


@scenario(area=AREA, title="get_topic_partitions")
def topic_partitions(run: ScenarioRun) -> None:
    run.record("partitioned", run.shared_client.get_topic_partitions(run.topic("split", partitions=3)))
    plain = run.topic("plain")
    run.producer(plain)
    run.record("plain", run.shared_client.get_topic_partitions(plain))


@scenario(area=AREA, title="receive in one thread, close in another")
def close_while_receiving(run: ScenarioRun) -> None:
    consumer = run.consumer(run.topic())
    ended: list[str] = []
    waits = threading.Event()

    def receive() -> None:
        waits.set()
        try:
            consumer.receive()
        except Exception as error:
            ended.append(run.error_name(error))

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    waits.wait()
    run.record("nothing yet", ended)
    consumer.close()
    thread.join(20)
    run.record("ended", ended)


@scenario(area=AREA, title="A producer inside a listener")
def producer_in_listener(run: ScenarioRun) -> None:
    topic, answers = run.topic("questions"), run.topic("answers")
    consumer = run.consumer(answers)
    producer = run.producer(answers)

    def answer(source: Any, message: Any) -> None:
        producer.send(b"re: " + message.data())
        source.acknowledge(message)

    run.consumer(topic, message_listener=answer)
    run.send(topic, ["a", "b"])
    run.record_messages("answers", run.receive(consumer, 2))
