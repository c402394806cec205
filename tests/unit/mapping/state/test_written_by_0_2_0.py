"""What 0.2.0 wrote is read, and it can read what is written now: the same bytes, or the same members of JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from pulsar_on_kafka_mapping.state.state_keys import decode_key, encode_key
from tests.state_values import VALUES
from tests.written_by_0_2_0 import KEYS, WRITTEN

SINCE = {
    "commit with floors",
    "commit with reasons",
    "lease with reasons",
    "report of a consumer that drains, with reasons",
    "consumers told that are waited for",
    "consumers told, and who holds an entry",
    "consumers of an entry",
    "producers' claims of a topic with two hashing schemes",
    "producers' claims of a topic that had exclusive ones",
    "consumers told, and which are active",
    "consumers of a gateway told",
    "producer's heartbeat of a gateway",
    "transaction with an owner",
    "begin for an owner",
    "sequence snapshot beside messages that failed",
    "subscription that consumers join",
    "topic that may be deleted",
    "topic that is terminated",
    "producers' claims of a terminated topic",
    "namespace with properties and permissions",
    "tenant's information",
    "consumer registrations",
    "clusters with gateways",
}
"""What 0.2.0 did not write. It refuses to read floors and reasons (CHANGELOG), and passes over the others."""
MEMBERS_SINCE = {
    "close": {"topic_deleted"},
    "clusters": {"gateways"},
    "import": {"switch"},
    "namespace": {"auth", "properties"},
    "producers' claims": {"ended", "hashing_schemes", "raw", "terminated", "topic_epochs"},
    "sequence snapshot": {"absent_ids", "forgotten_upto"},
    "subscription": {"joining"},
    "subscription that is new": {"joining"},
    "topic": {"deletion_mark", "properties", "terminated", "unanswered"},
    "topic that is new": {"deletion_mark", "properties", "terminated", "unanswered"},
}
"""It passes over these members of values that it wrote."""
MEMBERS_UNTIL = {"subscription": {"replicated_by"}, "subscription that is new": {"replicated_by"}}
"""Members that only 0.2.0 wrote: it has a default for them."""
THEN = sorted(VALUES.keys() - SINCE)


@pytest.mark.parametrize("name", THEN)
def test_what_0_2_0_wrote_is_read(name: str) -> None:
    case = VALUES[name]
    assert case.decode(WRITTEN[name]) == (case.value if case.read is None else case.read)


@pytest.mark.parametrize("name", THEN)
def test_0_2_0_can_read_what_is_written(name: str) -> None:
    now, then = VALUES[name].encode(VALUES[name].value), WRITTEN[name]
    if then.startswith(b"{"):
        (now, _, behind), (then, _, expected) = now.partition(b"\n"), then.partition(b"\n")
        read = _without(orjson.loads(now), MEMBERS_SINCE.get(name, set()))
        needed = {
            member: value for member, value in orjson.loads(then).items() if member not in MEMBERS_UNTIL.get(name, ())
        }
        assert (read, behind) == (needed, expected)
    else:
        assert now == then


def _without(value: Any, members: set[str]) -> Any:
    """A JSON value without these members, also of inner objects."""
    if not isinstance(value, dict):
        return value
    return {name: _without(inner, members) for name, inner in value.items() if name not in members}


@pytest.mark.parametrize(("kind", "data"), KEYS.items())
def test_keys_are_the_same_bytes(kind: str, data: bytes) -> None:
    key = decode_key(data)
    assert type(key).__name__ == kind
    assert encode_key(key) == data
