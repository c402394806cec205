"""A gateway is told what clients once said, changed by chance, while another client goes on undisturbed."""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.wire.commands import Type, parsed
from pulsar_on_kafka_mapping.wire.frames import FrameCutter, MalformedFrame
from tests.integration.gateway.wire import Wire
from tests.pulsar_sessions import CLIENTS, recorded
from tests.steps import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.soak]

_ANSWER_S = 0.05
_EVERY = 5
"""Connections between two looks at the client that is to be left alone."""


class Stranger:
    """One connection, that says what it likes and hears whatever is answered."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.settimeout(_ANSWER_S)
        self._cutter = FrameCutter()
        self.heard: Counter[Type] = Counter()

    def say(self, data: bytes) -> bool:
        """Whether it may go on."""
        try:
            self._socket.sendall(data)
            answer = self._socket.recv(65_536)
        except TimeoutError:
            return True
        except OSError:
            return False
        self.heard.update(parsed(each.command)[0] for each in self._cutter.feed(answer))
        return bool(answer)

    def close(self) -> None:
        self._socket.close()


def changed(frames: Sequence[bytes], others: Sequence[bytes], dice: random.Random) -> list[bytes]:
    """Some of them in another way, order or number; the first one, CONNECT, mostly as it is."""
    found = list(frames)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(found)) if dice.random() < 0.1 else min(len(found), dice.randint(1, len(found)))
        way = dice.randrange(6)
        if way == 0 and at < len(found):
            found.insert(dice.randrange(len(found)), found.pop(at))
        elif way == 1:
            found.insert(at, dice.choice(others))
        elif at < len(found) and found[at]:
            data = bytearray(found[at])
            place = dice.randrange(len(data))
            if way == 2:
                data[place] ^= 1 << dice.randrange(8)
            elif way == 3:
                data[place : place + dice.randint(0, 8)] = dice.randbytes(dice.randint(0, 8))
            elif way == 4:
                del data[place:]
            else:
                data = changed_inside(data, dice)
            found[at] = bytes(data)
    return found


def changed_inside(data: bytearray, dice: random.Random) -> bytearray:
    """Bytes of the command alone, so that it is still a frame."""
    with suppress(MalformedFrame):
        for command, _ in FrameCutter().feed(bytes(data)):
            place = 8 + dice.randrange(max(1, len(command)))
            data[place : place + 1] = bytes((dice.choice((0, 1, 127, 128, 255, dice.randrange(256))),))
    return data


def test_whatever_is_said_to_it_a_gateway_serves_others(
    gateway: Gateway, client: pulsar.Client, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """For `POK_CHAOS_SECONDS`, as `POK_CHAOS_SEED` says."""
    seed = int(os.environ.get("POK_CHAOS_SEED", random.randrange(10**6)))
    dice, told, closed = random.Random(seed), 0, 0
    print(f"seed {seed}")
    sessions: list[list[bytes]] = []
    for name in CLIENTS:
        by_connection: dict[int, list[bytes]] = {}
        for connection, data in recorded(name):
            by_connection.setdefault(connection, []).append(data)
        sessions += by_connection.values()
    everything = [data for frames in sessions for data in frames]
    heard: Counter[Type] = Counter()
    reader = client.create_reader(unique(), pulsar.MessageId.earliest)
    until_s = time.monotonic() + float(os.environ.get("POK_CHAOS_SECONDS", "600"))
    with Wire(gateway) as left_alone:
        left_alone.connect()
        left_alone.ask(Type.PRODUCER, topic=reader.topic(), producer_id=1, request_id=1)
        while time.monotonic() < until_s:
            stranger = Stranger(gateway.port)
            try:
                closed += not all(map(stranger.say, changed(dice.choice(sessions), everything, dice)))
            except MappingError as malformed:
                pytest.fail(f"the gateway says what is none of Pulsar's protocol: {malformed}")
            finally:
                stranger.close()
            heard += stranger.heard
            told += 1
            if told % _EVERY == 0:
                left_alone.send(1, told, b"%d" % told)
                while (kind := left_alone.hear()[0]) is Type.PING:
                    left_alone.say(Type.PONG)
                assert kind is Type.SEND_RECEIPT
                assert reader.read_next(30_000).data() == b"%d" % told
                assert not faults(caplog), faults(caplog)
    print(f"{told} connections, {closed} of them closed by the gateway; heard {dict(heard)}")


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What nobody meant to happen: a failure that was not foreseen is logged with its traceback."""
    return [
        f"{each.getMessage()}: {each.exc_info[1]!r}"
        for each in caplog.records
        if each.levelno >= logging.ERROR and each.exc_info and each.exc_info[1] is not None
    ]
