"""An inbox gives the messages of a consumer to the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.values.message import Message


class InboxQueue(Protocol):
    def popleft(self) -> Message: ...
    def appendleft(self, message: Message, /) -> None: ...


class Inbox(Protocol):
    """The application's side of an `Endpoint` that makes Messages, or of several of them."""

    name: str
    capacity: int
    starved: bool
    on_available: Callable[[], None] | None
    wake_member: Callable[[], None]

    @property
    def queue(self) -> InboxQueue: ...
    @property
    def failure(self) -> Exception | None: ...
    def has_room_again(self) -> bool: ...
    def take_now(self) -> Message | None: ...
    def take(self, deadline: Deadline) -> Message: ...
    def expect(self, more: int) -> None: ...
    def close(self) -> None: ...
