"""What clients of several languages said to a gateway is read as it was meant, and what is
changed in it has a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand, Type, command, parsed
from pulsar_on_kafka_mapping.wire.entries import WireEntry, read_entry, write_entry
from pulsar_on_kafka_mapping.wire.frames import Frame, FrameCutter, frame
from pulsar_on_kafka_mapping.wire.message_metadata import decode_metadata, encode_metadata
from tests.pulsar_sessions import CLIENTS, meaning, meanings, recorded

_OF_EACH_KIND = 2
_MAX_BYTES = 200 * 1024


@cache
def frames(client: str) -> list[Frame]:
    return [each for said in recorded(client) for each in FrameCutter().feed(said.frame)]


def some(client: str) -> Iterator[Frame]:
    """Of each command the two shortest frames."""
    by_kind: dict[Type, list[Frame]] = {}
    for each in frames(client):
        by_kind.setdefault(parsed(each.command)[0], []).append(each)
    for found in by_kind.values():
        yield from sorted(found, key=lambda each: len(each.command) + len(each.entry))[:_OF_EACH_KIND]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_frame_means_what_it_did(client: str) -> None:
    found = [f"{connection} {meaning(data)}" for connection, data in recorded(client)]
    assert found == meanings(client)
    assert {parsed(each.command)[0] for each in frames(client)} >= {Type.CONNECT, Type.SEND, Type.SUBSCRIBE, Type.ACK}


def test_frames_are_cut_out_of_a_connection_s_stream(client: str) -> None:
    streams: dict[int, bytes] = {}
    for connection, data in recorded(client):
        streams[connection] = streams.get(connection, b"") + data
    for connection, stream in streams.items():
        whole = [each for number, data in recorded(client) if number == connection for each in FrameCutter().feed(data)]
        for size in (1, 7, 1000):
            cutter = FrameCutter()
            found = [each for at in range(0, len(stream), size) for each in cutter.feed(stream[at : at + size])]
            assert found == whole


def test_commands_and_entries_are_written_as_they_came(client: str) -> None:
    """Clients write fields in the order of their numbers, as Protobuf's own library does."""
    for each in frames(client):
        kind, said = parsed(each.command)
        assert command(kind, **{field.name: value for field, value in said.ListFields()}) == each.command
        if kind is Type.SEND:
            metadata, payload, _ = read_entry(each.entry, checksum_required=True)
            assert encode_metadata(decode_metadata(metadata)) == metadata
            assert write_entry(WireEntry(metadata, payload)) == each.entry


def test_what_is_cut_short_says_so(client: str) -> None:
    for said, entry in some(client):
        for length in range(len(said)):
            with pytest.raises(MalformedCommand):
                meaning(frame(said[:length], entry))
        for length in range(len(entry)):
            with pytest.raises(MappingError):
                meaning(frame(said, entry[:length]))


def test_a_changed_bit_is_another_message_or_a_clear_error(client: str) -> None:
    for said, entry in some(client):
        whole = frame(said, entry)
        for at in range(len(whole) * 8):
            changed = bytearray(whole)
            changed[at // 8] ^= 1 << at % 8
            with suppress(MappingError):
                meaning(bytes(changed))


def test_a_changed_bit_of_an_entry_does_not_fit_its_checksum(client: str) -> None:
    (_, entry) = next(each for each in some(client) if each.entry)
    for at in range(16, len(entry) * 8):  # the first two bytes say that there is one
        changed = bytearray(entry)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(MappingError):
            read_entry(bytes(changed), checksum_required=True)


def test_the_sessions_are_small() -> None:
    assert sum(len(recorded_bytes) for client in CLIENTS for _, recorded_bytes in recorded(client)) < _MAX_BYTES / 2
