"""By which scheme a client chooses partitions is known by the keys that come to one of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pulsar_on_kafka.gateway.handlers.key_schemes import KeyScheme
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash, partition_for_key


def keys_of(scheme: KeyHash, partition: int, partitions: int) -> list[bytes]:
    keys = [b"key-%d" % number for number in range(3000)]
    return [key for key in keys if partition_for_key(key, partitions, scheme) == partition]


def seen(looking: KeyScheme, keys: Iterable[bytes]) -> list[KeyHash]:
    found = []
    for key in keys:
        if looking.is_over:
            break
        if (scheme := looking.saw(key)) is not None:
            found.append(scheme)
    return found


@pytest.mark.parametrize("scheme", list(KeyHash))
@pytest.mark.parametrize("partitions", [2, 3, 4, 16, 8192])
def test_the_scheme_is_known_once(scheme: KeyHash, partitions: int) -> None:
    looking = KeyScheme(1, partitions)
    keys = keys_of(scheme, 1, partitions)
    found = seen(looking, keys)
    assert found == ([scheme] if len(keys) >= 16 else found)
    assert set(found) <= {scheme}


def test_a_key_that_comes_again_and_again_tells_nothing() -> None:
    looking = KeyScheme(1, 2)
    key = keys_of(KeyHash.BOOST, 1, 2)[0]
    assert not seen(looking, [key] * 5000)
    assert looking.is_over


@pytest.mark.parametrize("partitions", [2, 4])
def test_who_routes_otherwise_has_none(partitions: int) -> None:
    looking = KeyScheme(0, partitions)
    assert not seen(looking, (b"key-%d" % number for number in range(3000)))
    assert looking.is_over


def test_two_clients_schemes_in_one_are_none() -> None:
    looking = KeyScheme(0, 4)
    mixed = [
        key for pair in zip(keys_of(KeyHash.BOOST, 0, 4), keys_of(KeyHash.CRC32, 0, 4), strict=False) for key in pair
    ]
    assert not seen(looking, mixed)
