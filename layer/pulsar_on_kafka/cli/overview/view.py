"""The state of `pok top`, and its change by a key. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pulsar_on_kafka.admin.overview.ordering import Only, Order, ordered
from pulsar_on_kafka.admin.overview.records import Overview, SubscriptionOverview, SubscriptionPlace

KEYS: Final[Mapping[str, Order]] = {
    "b": Order.BACKLOG,
    "a": Order.RATE,
    "o": Order.OLDEST,
    "s": Order.STUCK,
    "h": Order.HOLES,
    "u": Order.SUSPECTS,
    "d": Order.DEAD_LETTERS,
    "t": Order.TRANSACTIONS,
    "n": Order.NAME,
}
HELP: Final = "b)acklog a)cked/s o)ldest s)tuck h)oles s(u)spects d)ead t)ransactions n)ame"
MOVES: Final = "arrows: choose   enter: open   esc: back   f: filter   r: refresh   q: quit"
_FILTERS: Final = (Only.ALL, Only.UNCONSUMED, Only.STUCK, Only.SLOW)
"""The filters that `f` selects in turn."""

_UP: Final = ("\x1b[A", "\x1bOA", "k")
_DOWN: Final = ("\x1b[B", "\x1bOB", "j")
_PAGE_UP: Final = ("\x1b[5~",)
_PAGE_DOWN: Final = ("\x1b[6~", " ")
_OPEN: Final = ("\r", "\n")
_BACK: Final = ("\x1b", "\x7f", "\x08")
_QUIT: Final = ("q", "Q", "\x04")


@dataclass(frozen=True, slots=True)
class View:
    """The view. `chosen` follows its subscription; None: the first line. `opened`: the one that is shown by itself.
    `look`: whether the user requested a refresh."""

    order: Order = Order.BACKLOG
    only: Only = Only.ALL
    chosen: SubscriptionPlace | None = None
    opened: SubscriptionPlace | None = None
    look: bool = False
    ended: bool = False

    def rows(self, seen: Overview) -> list[SubscriptionOverview]:
        return ordered(filter(self.only.applies, seen.subscriptions), self.order)

    def place(self, rows: Sequence[SubscriptionOverview]) -> int:
        """The line that is chosen."""
        names = [row.place for row in rows]
        return names.index(self.chosen) if self.chosen in names else 0

    def window(self, rows: Sequence[SubscriptionOverview], lines: int) -> range:
        """The lines that are shown, with the chosen one among them."""
        first = max(0, min(self.place(rows) - lines // 2, len(rows) - lines))
        return range(first, min(len(rows), first + lines))

    def pressed(self, key: str, seen: Overview, lines: int) -> View:
        """The view after a key; `lines` are shown at a time."""
        view = replace(self, look=False)
        if key in _QUIT:
            return replace(view, ended=True)
        if key == "r":
            return replace(view, look=True)
        if view.opened is not None:
            return replace(view, opened=None) if key in _BACK else view
        if key in KEYS:
            return replace(view, order=KEYS[key], chosen=None)
        if key == "f":
            at = _FILTERS.index(self.only) if self.only in _FILTERS else -1
            return replace(view, only=_FILTERS[(at + 1) % len(_FILTERS)], chosen=None)
        rows = view.rows(seen)
        if not rows:
            return view
        if key in _OPEN:
            return replace(view, opened=rows[view.place(rows)].place)
        steps = {_UP: -1, _DOWN: 1, _PAGE_UP: -lines, _PAGE_DOWN: lines}
        step = next((by for keys, by in steps.items() if key in keys), 0)
        return replace(view, chosen=rows[max(0, min(len(rows) - 1, view.place(rows) + step))].place) if step else view


def split_keys(typed: str) -> list[str]:
    """Keys, of what a terminal sent at once: an escape sequence is one."""
    keys: list[str] = []
    while typed:
        length = 1
        if typed.startswith(("\x1b[", "\x1bO")):
            rest = typed[2:]
            length = 2 + next((at for at, char in enumerate(rest, 1) if char.isalpha() or char == "~"), len(rest))
        keys.append(typed[:length])
        typed = typed[length:]
    return keys
