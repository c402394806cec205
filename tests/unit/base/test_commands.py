"""No wake-up of the serving thread is lost."""

from __future__ import annotations

import time

from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.worker import aside

LONG_S = 60.0


def test_a_wake_up_before_the_wait_ends_it_at_once() -> None:
    commands = CommandQueue()
    commands.execute()
    commands.wake()
    begun_s = time.monotonic()
    commands.wait(LONG_S)
    assert commands.wait_in(lambda seconds: seconds, LONG_S) == 0.0, "it counts until commands are executed"
    assert time.monotonic() - begun_s < LONG_S
    commands.execute()
    assert commands.wait_in(lambda seconds: seconds, LONG_S) == LONG_S


def test_a_wake_up_while_commands_are_executed_counts_for_the_next_wait() -> None:
    commands = CommandQueue()
    commands.run(commands.wake)
    assert commands.execute()
    assert commands.is_woken


def test_a_command_of_another_thread_ends_the_wait() -> None:
    commands = CommandQueue()
    commands.execute()
    aside("pok-test-command", lambda: commands.run(lambda: None))
    begun_s = time.monotonic()
    commands.wait(LONG_S)
    assert time.monotonic() - begun_s < LONG_S
    assert commands.execute()


def test_only_a_wait_is_ended() -> None:
    ended: list[float] = []
    commands = CommandQueue(lambda: ended.append(0.0))
    commands.wake()
    assert ended == []

    def wait(seconds: float) -> float:
        commands.wake()
        return seconds

    commands.execute()
    assert commands.wait_in(wait, LONG_S) == LONG_S
    assert ended == [0.0]
