"""Typed topics: what producers and consumers with schemas may do, and what arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "schemas"


def _record(run: ScenarioRun, name: str = "Event", **fields: str) -> Any:
    """A Record class of this side's module; `fields` name its field classes."""
    module = run.submodule("schema")
    return type(name, (module.Record,), {field: getattr(module, kind)() for field, kind in fields.items()})


def _event(run: ScenarioRun) -> Any:
    return _record(run, a="String", b="Integer")


def _schema(run: ScenarioRun, kind: str, record: Any) -> Any:
    return getattr(run.submodule("schema"), f"{kind}Schema")(record)


def _earliest(run: ScenarioRun, topic: str, **options: Any) -> Any:
    return run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest, **options)


def _record_values(run: ScenarioRun, what: str, messages: list[Any]) -> None:
    run.record(what, [_plain(message.value()) for message in messages])


def _plain(value: Any) -> Any:
    if isinstance(value, (str, bytes, int, dict)):
        return value.hex() if isinstance(value, bytes) else value
    return {name: getattr(value, name) for name in sorted(vars(value)) if not name.startswith("_")}


@scenario(area=AREA, title="Texts")
def texts(run: ScenarioRun) -> None:
    topic, text = run.topic(), run.submodule("schema").StringSchema()
    consumer = run.consumer(topic, schema=text)
    producer = run.producer(topic, schema=text)
    producer.send("Grüße")
    producer.send("")
    _record_values(run, "values", run.receive(consumer, 2))
    run.attempt("bytes as a text", lambda: producer.send(b"bytes"))
    run.record("schema", run.admin.schema(topic))


def _records(run: ScenarioRun, kind: str, payload: Callable[[bytes], Any]) -> None:
    topic, record = run.topic(), _event(run)
    consumer = run.consumer(topic, schema=_schema(run, kind, record))
    producer = run.producer(topic, schema=_schema(run, kind, record))
    producer.send(record(a="one", b=1))
    producer.send(record(a="two"))
    messages = run.receive(consumer, 2)
    _record_values(run, "values", messages)
    run.record("payloads", [payload(message.data()) for message in messages])
    run.record("versions", [message.schema_version() for message in messages])
    run.record("schema", run.admin.schema(topic))
    run.attempt("another class", lambda: producer.send("text"))


@scenario(area=AREA, title="JSON records: values, payloads and what the topic keeps")
def json_records(run: ScenarioRun) -> None:
    _records(run, "Json", json.loads)


@scenario(area=AREA, title="Avro records: values, payloads and what the topic keeps")
def avro_records(run: ScenarioRun) -> None:
    _records(run, "Avro", bytes.hex)


@scenario(area=AREA, title="Batches of Avro records")
def avro_in_batches(run: ScenarioRun) -> None:
    topic, record = run.topic(), _event(run)
    consumer = run.consumer(topic, schema=_schema(run, "Avro", record))
    producer = run.producer(topic, schema=_schema(run, "Avro", record), batching_enabled=True)
    for number in range(20):
        producer.send_async(record(a=f"{number}", b=number), lambda result, message_id: None)
    producer.flush()
    messages = run.receive(consumer, 20)
    _record_values(run, "values", messages)
    run.record("versions", sorted({message.schema_version() for message in messages}))


@scenario(area=AREA, title="A partitioned topic has one history of schemas")
def partitioned(run: ScenarioRun) -> None:
    topic, record = run.topic(partitions=3), _event(run)
    consumer = run.consumer(topic, "sub", "Shared", schema=_schema(run, "Avro", record))
    for partition in range(3):
        producer = run.producer(f"{topic}-partition-{partition}", schema=_schema(run, "Avro", record))
        producer.send(record(a=str(partition), b=partition))
    messages = run.receive(consumer, 3)
    run.record("values", sorted(_plain(message.value())["a"] for message in messages))
    run.record("versions", sorted({message.schema_version() for message in messages}))
    run.record("schema", run.admin.schema(topic))


@scenario(area=AREA, title="Messages of older and newer writers, read with one's own schema")
def evolution(run: ScenarioRun) -> None:
    topic = run.topic()
    older = run.submodule("schema").AvroSchema(None, schema_definition=_avro(a="string"))
    newer = run.submodule("schema").AvroSchema(None, schema_definition=_avro(a="string", b=("int", 7)))
    first = run.producer(topic, schema=older)
    second = run.producer(topic, schema=newer)
    first.send({"a": "older"})
    second.send({"a": "newer", "b": 1})
    first.send({"a": "older again"})
    with_newer = _earliest(run, topic, schema=newer)
    messages = run.receive(with_newer, 3)
    _record_values(run, "as the newer one", messages)
    run.record("versions", [message.schema_version() for message in messages])
    with_older = run.shared_client.subscribe(
        topic, "other", schema=older, initial_position=run.sdk.InitialPosition.Earliest
    )
    _record_values(run, "as the older one", run.receive(with_older, 3))
    run.record("history", run.admin.schemas(topic))


@scenario(area=AREA, title="The same schema again is the same version, whoever brings it")
def the_same_again(run: ScenarioRun) -> None:
    topic = run.topic()
    first, second = _avro(a="string"), _avro(a="string", b=("int", 0))
    for definition in (first, second, first, dict(reversed(second.items()))):
        producer = run.producer(topic, schema=run.submodule("schema").AvroSchema(None, schema_definition=definition))
        producer.send({"a": "x", "b": 1} if len(definition["fields"]) > 1 else {"a": "x"})
        producer.close()
    consumer = _earliest(run, topic)
    run.record("versions", [message.schema_version() for message in run.receive(consumer, 4)])
    run.record("history", [found["version"] for found in run.admin.schemas(topic)])


@scenario(area=AREA, title="Readers and table views with schemas")
def readers(run: ScenarioRun) -> None:
    topic, record = run.topic(), _event(run)
    producer = run.producer(topic, schema=_schema(run, "Avro", record))
    producer.send(record(a="one", b=1), partition_key="k")
    producer.send(record(a="two", b=2), partition_key="k")
    reader = run.reader(topic, run.sdk.MessageId.earliest, schema=_schema(run, "Avro", record))
    _record_values(run, "read", run.read(reader, 2))
    view = run.shared_client.create_table_view(topic, schema=_schema(run, "Avro", record))
    run.record("in the view", _plain(view.get("k")))
    other = _schema(run, "Avro", _record(run, "Other", c="Integer"))
    run.attempt("reader of another schema", lambda: run.reader(topic, run.sdk.MessageId.earliest, schema=other))


@scenario(area=AREA, title="A producer without a schema on a typed topic, and bytes there")
def untyped_producer(run: ScenarioRun) -> None:
    topic, record = run.topic(), _event(run)
    run.producer(topic, schema=_schema(run, "Json", record)).send(record(a="typed", b=1))
    run.attempt("bytes", lambda: run.producer(topic).send(b'{"a": "untyped", "b": 2}'))
    consumer = _earliest(run, topic, schema=_schema(run, "Json", record))
    messages = run.receive(consumer, 2)
    _record_values(run, "values", messages)
    run.record("versions", [message.schema_version() for message in messages])
    untyped = run.shared_client.subscribe(topic, "b", initial_position=run.sdk.InitialPosition.Earliest)
    run.record("as bytes", [json.loads(message.value()) for message in run.receive(untyped, 2)])


@scenario(area=AREA, title="A producer without a schema where schemas are enforced")
def enforced(run: ScenarioRun) -> None:
    namespace, record = run.namespace(), _event(run)
    run.admin.set_schema_validation_enforced(namespace, enforced=True)
    topic, plain = run.topic("typed", namespace=namespace), run.topic("plain", namespace=namespace)
    run.producer(topic, schema=_schema(run, "Json", record)).send(record(a="typed", b=1))
    run.attempt("without a schema on a typed topic", lambda: run.producer(topic))
    run.attempt("without a schema elsewhere", lambda: run.producer(plain))
    run.attempt("with the schema", lambda: run.producer(topic, schema=_schema(run, "Json", record)))
    run.attempt("a consumer without a schema", lambda: run.consumer(topic))


@scenario(area=AREA, title="No new schemas where producers may not bring them")
def no_auto_update(run: ScenarioRun) -> None:
    namespace = run.namespace()
    run.admin.set_is_allow_auto_update_schema(namespace, allowed=False)
    topic, module = run.topic(namespace=namespace), run.submodule("schema")
    first = module.AvroSchema(None, schema_definition=_avro(a="string"))
    second = module.AvroSchema(None, schema_definition=_avro(a="string", b=("int", 0)))
    run.attempt("the first one", lambda: run.producer(topic, schema=first))
    run.attempt("a consumer of the first one", lambda: run.consumer(topic, schema=first))
    run.attempt("an admin's", lambda: run.admin.upload_schema(topic, "AVRO", json.dumps(_avro(a="string"))))
    run.attempt("the same one", lambda: run.producer(topic, schema=first))
    run.attempt("another one", lambda: run.producer(topic, schema=second))
    run.attempt("a consumer of another one", lambda: run.consumer(topic, schema=second))
    run.record("history", [found["version"] for found in run.admin.schemas(topic)])


@scenario(area=AREA, title="Another type of schema than the topic's")
def another_type(run: ScenarioRun) -> None:
    record = _event(run)
    for kind, other in (("Json", "Avro"), ("Avro", "Json")):
        topic = run.topic(kind)
        run.producer(topic, schema=_schema(run, kind, record))
        run.attempt(f"{other} producer on {kind}", lambda: run.producer(topic, schema=_schema(run, other, record)))  # noqa: B023
        run.attempt(f"{other} consumer on {kind}", lambda: run.consumer(topic, schema=_schema(run, other, record)))  # noqa: B023
        text = run.submodule("schema").StringSchema()
        run.attempt(f"text producer on {kind}", lambda: run.producer(topic, schema=text))  # noqa: B023
        run.attempt(f"text consumer on {kind}", lambda: run.consumer(topic, schema=text))  # noqa: B023
        run.record(f"history of {kind}", [(found["version"], found["type"]) for found in run.admin.schemas(topic)])
    topic = run.topic("Text")
    run.producer(topic, schema=run.submodule("schema").StringSchema())
    run.attempt("JSON producer on texts", lambda: run.producer(topic, schema=_schema(run, "Json", record)))
    run.attempt("untyped producer on texts", lambda: run.producer(topic))
    run.attempt("untyped consumer on texts", lambda: run.consumer(topic))


@scenario(area=AREA, title="A typed consumer on a topic that has no schema")
def consumer_first(run: ScenarioRun) -> None:
    record = _event(run)
    empty, filled, served = run.topic("empty"), run.topic("filled"), run.topic("served")
    schema = _schema(run, "Avro", record)
    run.attempt("on an empty topic", lambda: run.consumer(empty, schema=schema))
    run.record("it has", [(found["version"], found["type"]) for found in run.admin.schemas(empty)])
    run.send(filled, ["bytes"])
    run.attempt("on one with data", lambda: run.consumer(filled, schema=schema))
    run.record("that has", [(found["version"], found["type"]) for found in run.admin.schemas(filled)])
    run.producer(served)
    run.attempt("on one with a producer of bytes", lambda: run.consumer(served, schema=schema))
    run.record("this has", [(found["version"], found["type"]) for found in run.admin.schemas(served)])


@scenario(area=AREA, title="A typed consumer whose schema does not fit")
def consumer_that_does_not_fit(run: ScenarioRun) -> None:
    module, topic = run.submodule("schema"), run.topic()
    run.producer(topic, schema=module.AvroSchema(None, schema_definition=_avro(a="string")))
    for what, definition in {
        "the same": _avro(a="string"),
        "one field more with a default": _avro(a="string", b=("int", 0)),
        "one field more": _avro(a="string", b="int"),
        "another type": _avro(a="int"),
        "another field": _avro(b="string"),
    }.items():
        schema = module.AvroSchema(None, schema_definition=definition)
        run.attempt(what, lambda: run.shared_client.subscribe(topic, "sub", schema=schema).close())  # noqa: B023
    run.record("history", [found["version"] for found in run.admin.schemas(topic)])


@scenario(area=AREA, title="An admin uploads, lists, deletes")
def administration(run: ScenarioRun) -> None:
    topic = run.topic()
    run.attempt("none yet", lambda: run.admin.schema(topic))
    run.attempt("upload", lambda: run.admin.upload_schema(topic, "AVRO", json.dumps(_avro(a="string"))))
    more = json.dumps(_avro(a="string", b=("int", 0)))
    run.attempt("upload one more", lambda: run.admin.upload_schema(topic, "AVRO", more))
    run.attempt("upload what does not fit", lambda: run.admin.upload_schema(topic, "AVRO", json.dumps(_avro(z="int"))))
    run.attempt("upload what is none", lambda: run.admin.upload_schema(topic, "AVRO", "{"))
    run.record("history", run.admin.schemas(topic))
    run.attempt("delete", lambda: run.admin.delete_schema(topic))
    run.attempt("the latest", lambda: run.admin.schema(topic))
    run.attempt("upload after that", lambda: run.admin.upload_schema(topic, "AVRO", json.dumps(_avro(z="int"))))
    run.record("the new one", run.admin.schema(topic))


@scenario(area=AREA, title="A topic that is deleted takes its schemas along")
def deleted_topic(run: ScenarioRun) -> None:
    topic, module = run.topic(partitions=2), run.submodule("schema")
    producer = run.producer(topic, schema=module.AvroSchema(None, schema_definition=_avro(a="string")))
    producer.close()
    run.admin.delete_topic(topic)
    run.attempt("its schema", lambda: run.admin.schema(topic))
    run.admin.create_partitioned_topic(topic, 2)
    run.attempt(
        "another one", lambda: run.producer(topic, schema=module.AvroSchema(None, schema_definition=_avro(z="int")))
    )


@scenario(area=AREA, title="Dead letters of a typed topic keep their schema")
def dead_letters(run: ScenarioRun) -> None:
    topic, dead, record = run.topic(), run.topic("dead"), _event(run)
    schema = _schema(run, "Avro", record)
    letters = run.consumer(dead, schema=schema)
    policy = run.sdk.ConsumerDeadLetterPolicy(1, dead_letter_topic=dead)
    consumer = run.consumer(
        topic, "sub", "Shared", schema=schema, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=100
    )
    run.producer(topic, schema=schema).send(record(a="bad", b=1))
    for _ in range(2):
        (message,) = run.receive(consumer, 1)
        consumer.negative_acknowledge(message)
    (letter,) = run.receive(letters, 1)
    run.record("the letter", _plain(letter.value()))
    run.record("schema of the dead letter topic", run.admin.schema(dead))


@scenario(area=AREA, title="A payload that is none of the schema's")
def wrong_payload(run: ScenarioRun) -> None:
    topic, record = run.topic(), _event(run)
    consumer = run.consumer(topic, schema=_schema(run, "Json", record))
    untyped = run.producer(topic)
    untyped.send(b"no JSON")
    untyped.send(b'{"a": "good", "b": 1}')
    bad, good = run.receive(consumer, 2)
    try:
        bad.value()
        run.record("bad", "no error")
    except Exception:  # each side's decoder has errors of its own
        run.record("bad", "an error")
    run.record("data of the bad one", bad.data().decode())
    run.record("good", _plain(good.value()))


def _avro(**fields: Any) -> dict[str, Any]:
    """The definition of a record; a pair is a type and a default."""
    made = []
    for name, kind in fields.items():
        if isinstance(kind, tuple):
            made.append({"name": name, "type": kind[0], "default": kind[1]})
        else:
            made.append({"name": name, "type": kind})
    return {"type": "record", "name": "Event", "fields": made}
