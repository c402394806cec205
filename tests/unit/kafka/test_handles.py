"""The bound on librdkafka's handles of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from pulsar_on_kafka.base.errors import TooManyHandles
from pulsar_on_kafka.kafka import handles


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """A process with room for two handles, and for one more in reserve. Handles that the test leaves are released."""
    monkeypatch.setattr(handles, "RESERVE", 1)
    monkeypatch.setattr(handles, "MAX_HANDLES", handles.count() + 3)
    made: list[object] = []
    yield made
    for each in made:
        handles.release(each)


def test_the_reserve_is_for_housekeeping_alone(room: list[object]) -> None:
    room += [handles.opened(object), handles.opened(object)]
    with pytest.raises(TooManyHandles, match=r"has \d+ handles of librdkafka, \d+ are allowed.*close some"):
        handles.opened(object)
    room.append(handles.opened(object, reserved=True))
    with pytest.raises(TooManyHandles):
        handles.opened(object, reserved=True)


def test_a_released_handle_makes_room(room: list[object]) -> None:
    room += [handles.opened(object), handles.opened(object)]
    handles.release(room.pop())
    room.append(handles.opened(object))


def test_a_handle_that_could_not_be_made_takes_no_room(room: list[object]) -> None:
    def fails() -> object:
        raise ValueError

    before = handles.count()
    for _ in range(5):
        with suppress(ValueError):
            handles.opened(fails)
    assert handles.count() == before


def test_a_handle_that_is_being_made_takes_room(room: list[object]) -> None:
    def makes_others() -> object:
        room.append(handles.opened(object))
        with pytest.raises(TooManyHandles):
            handles.opened(object)
        return object()

    room.append(handles.opened(makes_others))


def test_there_is_a_bound_below_what_a_process_has() -> None:
    assert 0 < handles.RESERVE < handles.MAX_HANDLES < 1_000
