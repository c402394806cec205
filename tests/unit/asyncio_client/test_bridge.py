"""Completions reach the loop in batches, and blocking calls are undone when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.asyncio import PulsarException
from pulsar_on_kafka.asyncio.bridge import Bridge, FairSemaphore, LoopCompletions, settle
from pulsar_on_kafka.exceptions import Result


def test_a_thousand_completions_wake_the_loop_once() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        completions = LoopCompletions(loop)
        wakes = 0
        wake = loop.call_soon_threadsafe

        def counted(*arguments: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return wake(*arguments)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(1000)]

        def complete_all() -> None:
            for number, future in enumerate(futures):
                completions.put(partial(settle, future), Result.Ok, number)

        thread = threading.Thread(target=complete_all)
        thread.start()
        thread.join()  # the loop stands still meanwhile
        assert wakes == 1
        assert await asyncio.gather(*futures) == list(range(1000))

    asyncio.run(main())


def test_every_completion_arrives_once_from_many_threads() -> None:
    async def main() -> None:
        completions = LoopCompletions(asyncio.get_running_loop())
        seen: list[int] = []
        everything = asyncio.get_running_loop().create_future()

        def complete(result: Result, value: int) -> None:
            seen.append(value)
            if len(seen) == 20_000:
                everything.set_result(None)

        def put(base: int) -> None:
            for number in range(5000):
                completions.put(complete, Result.Ok, base + number)

        threads = [threading.Thread(target=put, args=(base,)) for base in range(0, 20_000, 5000)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(everything, 30)
        assert sorted(seen) == list(range(20_000))

    asyncio.run(main())


def test_a_failing_completion_does_not_keep_the_others_back() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        problems: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: problems.append(context))
        completions = LoopCompletions(loop)
        future: asyncio.Future[str] = loop.create_future()

        def failing(result: Result, value: Any) -> None:
            raise RuntimeError("no")

        completions.put(failing, Result.Ok, None)
        completions.put(partial(settle, future), Result.Ok, "yes")
        assert await future == "yes"
        assert len(problems) == 1

    asyncio.run(main())


def test_a_completion_for_a_closed_loop_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    completions = LoopCompletions(loop)
    loop.close()
    completions.put(lambda result, value: None, Result.Ok, None)


def test_settle_knows_failed_and_cancelled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()
        settle(failed, Result.ProducerFenced, None)
        with pytest.raises(PulsarException) as caught:
            await failed
        assert caught.value.error() is Result.ProducerFenced
        assert str(caught.value) == "43 ProducerFenced"
        cancelled: asyncio.Future[None] = loop.create_future()
        cancelled.cancel()
        settle(cancelled, Result.Ok, None)

    asyncio.run(main())


def test_what_a_cancelled_call_made_is_undone() -> None:
    async def main() -> None:
        bridge = Bridge()
        begun, go_on, undone = threading.Event(), threading.Event(), threading.Event()

        def slow() -> str:
            begun.set()
            go_on.wait(10)
            return "made"

        task = asyncio.ensure_future(bridge.call(slow, lambda made: undone.set() if made == "made" else None))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await asyncio.to_thread(undone.wait, 10)
        bridge.close()

    asyncio.run(main())


def test_failures_of_blocking_calls_are_this_modules() -> None:
    def busy() -> None:
        raise exceptions.ConsumerBusy("taken")

    async def main() -> None:
        bridge = Bridge()
        with pytest.raises(PulsarException, match="13 ConsumerBusy: taken") as caught:
            await bridge.call(busy)
        assert not isinstance(caught.value, exceptions.PulsarException)
        bridge.close()

    asyncio.run(main())


def test_room_is_given_in_turn_and_survives_cancelled_waits() -> None:
    async def main() -> None:
        room = FairSemaphore(1)
        await room.take()
        waiting = [asyncio.ensure_future(room.take()) for _ in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        room.give_back()  # goes to the second
        waiting[1].cancel()  # whose turn had come: it passes the room on
        await asyncio.wait([waiting[2]], timeout=5)
        assert [task.done() for task in waiting] == [True, True, True, False]
        room.give_back()
        await waiting[3]
        room.give_back()
        await asyncio.wait_for(room.take(), 5)

    asyncio.run(main())
