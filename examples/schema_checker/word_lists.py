"""A kind of schema of one's own, with the checker that judges it: a list of words, and messages are one of them.

    pip install examples/schema_checker
    export POK_SCHEMA_CHECKERS=avro,json,protobuf,protobuf_native,word_list
    python examples/schema_checker/word_lists.py kafka://localhost:9092

Every process that produces to such topics, consumes them or registers their schemas needs both. A reader knows what was
written with a list when its own has all of those words.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from typing import Final

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.schema import Schema
from pulsar_on_kafka.schema_compat import Difference, SchemaInfo, SchemaType, UnreadableSchema

WORD_LIST: Final = SchemaType.added("WORD_LIST", 1001)


class WordListChecker:
    """Source of the form: `registry.configured.SchemaChecker`."""

    schema_type = WORD_LIST

    def parse(self, schema: SchemaInfo) -> frozenset[str]:
        """The words of a definition, one a line."""
        try:
            words = schema.schema.decode("ascii").split("\n")
        except UnicodeDecodeError as error:
            raise UnreadableSchema(f"a list of words is ASCII text: {error}") from None
        if not all(word.isalpha() for word in words):
            raise UnreadableSchema(f"each line of a list of words is one word, got {words!r:.100}")
        return frozenset(words)

    def differences(self, reader: frozenset[str], writer: frozenset[str]) -> Iterator[Difference]:
        """A word that the writer may send, and the reader does not know."""
        for word in sorted(writer - reader):
            yield Difference(f"/{word}", "WORD_UNKNOWN", f"the reader does not know the word {word}")


CHECKER: Final = WordListChecker()


class WordListSchema(Schema):
    """Messages that are one word of a list."""

    def __init__(self, *words: str) -> None:
        self._words = frozenset(words)
        self._schema_info = SchemaInfo.declared(WORD_LIST, "\n".join(sorted(words)).encode("ascii"), "words")

    def encode(self, obj: str) -> bytes:
        if obj not in self._words:
            raise TypeError(f"expected one of {', '.join(sorted(self._words))}, got {obj!r:.60}")
        return obj.encode("ascii")

    def decode(self, data: bytes) -> str:
        return data.decode("ascii")


def main(service_url: str) -> None:
    client = pulsar.Client(service_url)
    topic = f"words-{secrets.token_hex(4)}"
    consumer = client.subscribe(topic, "readers", schema=WordListSchema("red", "green"))
    client.create_producer(topic, schema=WordListSchema("red", "green")).send("red")
    message = consumer.receive(10_000)
    print("received", message.value())
    consumer.acknowledge(message)
    try:
        client.create_producer(topic, schema=WordListSchema("red", "blue"))
    except pulsar.IncompatibleSchema as refused:
        print("refused:", refused)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1])
