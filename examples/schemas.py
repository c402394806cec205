"""A topic whose records change: every message is read with the version that wrote it.

    python examples/schemas.py kafka://localhost:9092

Source of the API: `pulsar.schema` of the official client; `AutoConsumeSchema` is the Java client's.
"""

from __future__ import annotations

import secrets
import sys

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.schema import AutoConsumeSchema, AvroSchema, Double, Record, String


class Reading(Record):
    sensor = String(required=True)
    celsius = Double(required=True)


def later_version() -> AvroSchema:
    """What the sensors of a later year send: a field more, with a default for readings that lack it."""
    definition = Reading.schema()
    place = {"name": "place", "type": "string", "default": "unknown"}
    return AvroSchema(None, {**definition, "fields": [*definition["fields"], place]})


def main(service_url: str) -> None:
    client = pulsar.Client(service_url)
    topic = f"readings-{secrets.token_hex(4)}"

    old = client.create_producer(topic, schema=AvroSchema(Reading))
    old.send(Reading(sensor="roof", celsius=21.5))
    new = client.create_producer(topic, schema=later_version())
    new.send({"sensor": "cellar", "celsius": 12.0, "place": "north"})

    for name, schema in (("old", AvroSchema(Reading)), ("new", later_version()), ("any", AutoConsumeSchema())):
        reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
        for _ in range(2):
            message = reader.read_next(10_000)
            value = message.value()
            shown = f"{value.sensor} {value.celsius}" if isinstance(value, Reading) else value
            print(f"{name} schema, version {int.from_bytes(message.schema_version().encode('latin-1'))}: {shown}")

    try:
        client.create_producer(topic, schema=pulsar.schema.JsonSchema(Reading))
    except pulsar.IncompatibleSchema as refused:
        print(f"refused: {str(refused).partition(': ')[2]}")
    client.close()


if __name__ == "__main__":
    main(sys.argv[1])
