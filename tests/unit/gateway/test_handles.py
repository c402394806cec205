"""Handles of a connection: what becomes of an id that is opened, closed, lost and opened again."""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.gateway.handlers.handles import Handles, Opening
from tests.seeds import in_three


def test_a_close_while_an_id_opens_gives_the_handle_back_to_its_opener() -> None:
    handles = Handles[str]()
    opening = handles.begin(7)
    assert handles.get(7) is None
    assert handles.is_busy(7)
    assert handles.give_up(7) is opening
    assert not opening.is_required
    assert handles.is_busy(7)  # until the request has ended nothing else is opened under this id
    assert not handles.opened(opening, "consumer")
    assert 7 not in handles
    assert handles.opened(handles.begin(7), "another")
    assert handles.items() == [(7, "another")]


def test_a_request_that_fails_frees_its_id() -> None:
    handles = Handles[str]()
    assert handles.failed(handles.begin(7))
    given_up = handles.begin(7)
    handles.give_up(7)
    assert not handles.failed(given_up)
    assert len(handles) == 0
    assert handles.give_up(7) is None


def test_a_handle_that_ends_by_itself_is_not_mistaken_for_its_successor() -> None:
    handles = Handles[str]()
    first = handles.begin(7)
    assert handles.lost(first) is None  # it was not open yet: whom it is opened for has to look
    assert handles.opened(first, "first")
    assert first.is_lost
    assert handles.lost(first) == "first"
    assert handles.remove(7, "first")
    assert handles.opened(handles.begin(7), "second")
    assert handles.lost(first) is None
    assert not handles.remove(7, "first")
    handles.leave(7, "first")
    assert handles.get(7) == "second"


def test_an_id_stays_taken_until_the_client_knows_that_its_handle_has_ended() -> None:
    handles = Handles[str]()
    assert handles.opened(handles.begin(7), "first")
    handles.leave(7, "first")
    assert handles.get(7) is None
    assert handles.give_up(7) is None  # its client closes it, too
    assert handles.is_busy(7)
    assert len(handles) == 1
    handles.left(7)
    assert handles.opened(handles.begin(7), "second")


def test_after_the_end_of_the_connection_nothing_is_opened() -> None:
    handles = Handles[str]()
    opening = handles.begin(1)
    assert handles.opened(handles.begin(2), "open")
    assert handles.end() == ["open"]
    assert not handles.opened(opening, "late")
    assert not handles.begin(3).is_required
    assert handles.items() == []


class Histories:
    """A connection's handles, and what is known of them beside."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.handles = Handles[int]()
        self.openings: list[Opening[int]] = []
        self.leaving = set[int]()
        self.alive = set[int]()
        """Handles that were made and not given back to be closed."""
        self._made = 0

    def step(self) -> None:
        number = self.draw.randrange(3)
        self.draw.choice([self._begin, self._succeed, self._fail, self._close, self._leave, self._lose])(number)
        if self.draw.random() < 0.01:
            self.alive.difference_update(self.handles.end())

    def _begin(self, number: int) -> None:
        if number not in self.handles:
            self.openings.append(self.handles.begin(number))

    def _one(self) -> Opening[int] | None:
        return self.openings.pop(self.draw.randrange(len(self.openings))) if self.openings else None

    def _succeed(self, number: int) -> None:
        opening = self._one()
        self._made += 1
        if opening is not None and self.handles.opened(opening, self._made):
            self.alive.add(self._made)

    def _fail(self, number: int) -> None:
        opening = self._one()
        if opening is not None:
            self.handles.failed(opening)

    def _close(self, number: int) -> None:
        found = self.handles.get(number)
        if found is None:
            self.handles.give_up(number)
        elif self.handles.remove(number, found):
            self.alive.remove(found)

    def _leave(self, number: int) -> None:
        found = self.handles.get(number)
        if number in self.leaving:
            self.handles.left(number)
            self.leaving.remove(number)
        elif found is not None:
            self.handles.leave(number, found)
            self.alive.remove(found)
            self.leaving.add(number)

    def _lose(self, number: int) -> None:
        if self.openings:
            assert self.handles.lost(self.draw.choice(self.openings)) is None


@pytest.mark.parametrize("seeds", in_three(300, range(5_000)))
def test_every_handle_is_with_the_client_or_was_given_back_once(seeds: range) -> None:
    for seed in seeds:
        history = Histories(seed)
        for _ in range(60):
            history.step()
            assert {handle for _, handle in history.handles.items()} == history.alive, seed
            busy = history.leaving | {opening.number for opening in history.openings}
            assert busy == {number for number in range(3) if history.handles.is_busy(number)}, seed
