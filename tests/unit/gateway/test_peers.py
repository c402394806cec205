"""Whether other gateways answer, on real sockets."""

from __future__ import annotations

import asyncio

from pulsar_on_kafka.gateway.fleet.peers import FRESH_S, FleetPeers
from tests.clocks import SetClock


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"!")
    writer.close()


async def _one_that_ends(clock: SetClock) -> tuple[bool, bool, bool, bool]:
    heard = asyncio.Event()
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    peers = FleetPeers(asyncio.get_running_loop(), clock, heard.set)
    peers.are({url})
    await heard.wait()
    at_first = peers.is_there(url)
    clock.seconds += 2 * FRESH_S
    heard.clear()
    unknown = peers.is_there(url)
    await heard.wait()
    again = peers.is_there(url)
    server.close()
    await server.wait_closed()
    clock.seconds += 2 * FRESH_S
    heard.clear()
    peers.is_there(url)
    await heard.wait()
    gone = peers.is_there(url)
    await peers.end()
    return at_first, unknown, again, gone


def test_one_that_answered_is_there_until_it_does_not() -> None:
    assert asyncio.run(_one_that_ends(SetClock())) == (True, False, True, False)


async def _one_never_reached(clock: SetClock) -> bool:
    heard = asyncio.Event()
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    url = f"pulsar://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    peers = FleetPeers(asyncio.get_running_loop(), clock, heard.set)
    peers.are({url})
    await heard.wait()
    clock.seconds += 2 * FRESH_S
    return peers.is_there(url)


def test_one_that_was_never_reached_is_not_judged() -> None:
    assert asyncio.run(_one_never_reached(SetClock()))
