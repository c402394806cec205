"""The hashing schemes of a partitioned topic's producers: which hash chooses the partition of a key. Producers with
different ones put a key into two partitions, where its messages have no order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, Versioned
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash
from pulsar_on_kafka_mapping.state.metadata.producer_records import ProducerClaims, decode_claims, encode_claims

_log: Final = logging.getLogger(__name__)

ClaimsIn = Callable[[Topic, "ProducerClaims | None"], ProducerClaims]
"""The claims of a topic's incarnation, of what is on record; `claims_in`."""


class HashingSchemes:
    """Puts on record which schemes the producers of this process have, and warns where a topic's first one is another.
    Thread-safe.

    Memory: an entry for each topic and scheme that its producers had.
    """

    def __init__(self, entities: Entities[str], claims_in: ClaimsIn, wake: Callable[[], None]) -> None:
        """`wake`: `note` is to be called soon."""
        self._entities = entities
        self._claims_in = claims_in
        self._wake = wake
        self._lock = threading.Lock()
        self._known: set[tuple[str, int, KeyHash]] = set()
        """The topics and incarnations, with each scheme, that are recorded or about to be."""
        self._new: list[tuple[Topic, KeyHash]] = []

    def begins(self, topic: Topic, scheme: KeyHash) -> None:
        """A producer sends keyed messages by this scheme from now on. Returns at once."""
        known = str(topic.name), topic.layout.incarnation, scheme
        if not topic.partitioned or known in self._known:
            return
        with self._lock:
            if known in self._known:
                return
            self._known.add(known)
            self._new.append((topic, scheme))
        self._wake()

    def note(self, deadline: Deadline) -> None:
        """Put what is new on record. What cannot be now is for the next call, but for a missing right or topic."""
        with self._lock:
            new, self._new = self._new, []
        for at, (topic, scheme) in enumerate(new):
            try:
                self._put_on_record(topic, scheme, deadline)
            except errors.LayerError as failure:
                forbidden = isinstance(failure, errors.NotAuthorized)
                in_vain = forbidden or isinstance(failure, errors.NoSuchTopic)
                _log.log(
                    logging.WARNING if forbidden else logging.INFO,
                    "topic=%s that its producers route keys by %s is not on record: %s", topic.name, scheme, failure,
                )  # fmt: skip
                with self._lock:
                    self._new = [*new[at + in_vain :], *self._new]
                return

    def _put_on_record(self, topic: Topic, scheme: KeyHash, deadline: Deadline) -> None:
        place = str(topic.name)

        def with_scheme(current: Versioned | None) -> bytes | None:
            claims = self._claims_in(topic, None if current is None else decode_claims(current.value))
            if scheme.value in claims.hashing_schemes:
                return None
            return encode_claims(replace(claims, hashing_schemes=(*claims.hashing_schemes, scheme.value)))

        first = decode_claims(self._entities.update(place, with_scheme, deadline).value).hashing_schemes[0]
        if first != scheme.value:
            _log.warning(
                "topic=%s producers here choose the partition of a key by %s, the topic's first ones did by %s: "
                "messages of one key may lie in two partitions, and have no order. Give them one hashing_scheme "
                "(docs/gateway.md)",
                place, scheme, first,
            )  # fmt: skip
