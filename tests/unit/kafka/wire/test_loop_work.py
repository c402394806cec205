"""Calls that threads leave for a loop are made together, in order, and a closed loop refuses each of them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pulsar_on_kafka.base.errors import Closed
from pulsar_on_kafka.kafka.wire.loop_work import LoopCalls, LoopTasks


def test_calls_of_a_turn_are_made_together_and_one_that_fails_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> tuple[list[int], int]:
        made: list[int] = []
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            calls.make()

        calls = LoopCalls(asyncio.get_running_loop(), turn, "the tests")
        calls.leave(lambda: made.append(0))
        caller = threading.Thread(target=lambda: [calls.run(lambda: made.append(1)), calls.run(lambda: 1 // 0)])
        caller.start()
        caller.join()
        calls.run(lambda: made.append(2))
        while len(made) < 3:
            await asyncio.sleep(0)
        return made, turns

    assert asyncio.run(play()) == ([0, 1, 2], 1)
    assert "a call of the tests failed" in caplog.text


def test_a_limited_turn_leaves_the_rest_for_the_next_one() -> None:
    async def play() -> list[list[int]]:
        made: list[int] = []
        after: list[list[int]] = []

        def turn() -> None:
            calls.make(2)
            after.append([*made])
            if calls:
                calls.turn_soon()

        calls = LoopCalls(asyncio.get_running_loop(), turn, "the tests")
        for number in range(5):
            calls.run(lambda number=number: made.append(number))  # type: ignore[misc]
        while len(made) < 5:
            await asyncio.sleep(0)
        return after

    assert asyncio.run(play()) == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


def test_an_ended_loop_and_a_closed_owner_refuse_every_call() -> None:
    loop = asyncio.new_event_loop()
    calls = LoopCalls(loop, lambda: None, "the tests")
    loop.close()
    for _ in range(2):
        with pytest.raises(Closed, match="the client of this cluster is closed"):
            calls.run(lambda: None)
    calls.is_closed = True
    with pytest.raises(Closed, match="the tests of this process are closed"):
        calls.run(lambda: None)


def test_tasks_are_cancelled_together() -> None:
    async def play() -> list[bool]:
        tasks = LoopTasks()
        waiting = [tasks.start(asyncio.Event().wait()) for _ in range(3)]
        ended = tasks.start(asyncio.sleep(0))
        await ended
        tasks.cancel()
        await asyncio.wait(waiting)
        return [each.cancelled() for each in (*waiting, ended)]

    assert asyncio.run(play()) == [True, True, True, False]
