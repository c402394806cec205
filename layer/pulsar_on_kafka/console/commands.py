"""Commands of `pok` that do what a page shows or does, to be copied. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsoleCommands:
    """The lines begin with what leads `pok` to this cluster; `options` has no secrets."""

    options: tuple[str, ...] = ()

    def line(self, *words: object) -> str:
        return shlex.join(["pok", *map(str, words), *self.options])
