"""A key's slot is the one that Pulsar gives it."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.routing.sticky_hash import murmur3_32, sticky_key_hash


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x00\x00\x00\x00", 0x2362F9DE),
    ],
)
def test_murmur3_gives_the_published_values(data: bytes, expected: int) -> None:
    assert murmur3_32(data) == expected


def test_a_slot_drops_the_sign_and_is_modulo_65536() -> None:
    assert sticky_key_hash(b"hello") == 0x248BFA47 % 65_536


def test_slot_zero_is_one_as_in_pulsar() -> None:
    assert sticky_key_hash(b"") == 1
