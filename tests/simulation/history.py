"""A random history has a seed, a clock, a schedule of turns, and one log."""

from __future__ import annotations

import random
from collections.abc import Callable

from pulsar_on_kafka.statelog.memory_log import MemoryStateLog
from tests.simulation.turns import Actor, ManualClock, Schedule

Life = Callable[[Actor], None]


class ActorsHistory:
    """Actors at work on one log in memory. Assertions are to name `seed`.

    A history says in `step` what happens next, and calls `begin` and `play`.
    """

    def __init__(self, seed: int, steps: int) -> None:
        self.seed = seed
        self.steps = steps
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.schedule = Schedule(self.rng, self.clock)
        self.log = MemoryStateLog(self.clock)
        self.late: list[Callable[[], object]] = []
        """Appends that will come some time, or never."""
        self.actors: list[Actor] = []

    def begin(self, *lives: Life, then: Life) -> None:
        """An actor for each of these lives; `then` is the life of those who come after one that died."""
        self.actors = [Actor(life) for life in lives]
        self._then = then

    def play(self) -> None:
        try:
            for _ in range(self.steps):
                self.clock.seconds += 1
                self.step(self.rng.random())
        finally:
            for actor in self.actors:
                actor.end()

    def step(self, draw: float) -> None:
        """Let one thing happen; `draw`, from 0 to 1, is for choosing which."""
        raise NotImplementedError

    def one_arrives_late(self) -> None:
        self.late.pop(self.rng.randrange(len(self.late)))()

    def one_dies(self) -> Actor:
        """Gives the dead; another one comes in its place."""
        place = self.rng.randrange(len(self.actors))
        dead = self.actors[place]
        dead.end()
        self.actors[place] = Actor(self._then)
        return dead
