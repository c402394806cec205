"""A random history has a seed, a clock, a schedule of turns, and one log."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from tests.memory_log import MemoryStateLog
from tests.simulation.broker import SimulatedBroker
from tests.simulation.turns import Actor, ManualClock, Schedule

Life = Callable[[Actor], None]


class ActorsHistory:
    """Actors at work on one log in memory. Assertions are to name `seed`.

    A history says in `step` what happens next, and calls `begin` (or `begin_with`) and `play`.
    """

    step_s: ClassVar[int] = 1

    def __init__(self, seed: int, steps: int) -> None:
        self.seed = seed
        self.told = f"seed {seed}"
        self.steps = steps
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.schedule = Schedule(self.rng, self.clock)
        self.log = MemoryStateLog(self.clock)
        self.broker = SimulatedBroker(self.rng)
        """It has the requests that will arrive some time, or never."""
        self.actors: list[Actor] = []
        self._makers: tuple[Callable[[], Actor], ...] = ()

    def begin(self, *lives: Life, then: Life | None = None) -> None:
        """An actor for each of these lives; `then`, or the same, is the life of who comes after one that died."""
        self.begin_with(*(partial(Actor, life) for life in lives))
        if then is not None:
            self._makers = tuple(partial(Actor, then) for _ in lives)

    def begin_with(self, *makers: Callable[[], Actor]) -> None:
        """An actor of each of these; the same makes who comes after one that died."""
        self.actors = [make() for make in makers]
        self._makers = makers

    def play(self) -> None:
        try:
            for _ in range(self.steps):
                self.clock.seconds += self.step_s
                self.step(self.rng.random())
        finally:
            for actor in self.actors:
                actor.end()

    def step(self, draw: float) -> None:
        """Let one thing happen; `draw`, from 0 to 1, is for choosing which."""
        raise NotImplementedError

    def one_dies(self) -> Actor:
        """Gives the dead; another one comes in its place."""
        place = self.rng.randrange(len(self.actors))
        dead = self.actors[place]
        dead.end()
        self.actors[place] = self._makers[place]()
        return dead
