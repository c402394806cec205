"""Python's garbage collector in processes that move many messages."""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (10_000, 5, 5)
"""New objects before a collection of the youngest generation, and the collections of a generation before one of the
next. Python's own are 700, 10 and 10. A receiving process has up to some thousand records on their way: with 10,000 no
collection is caused by them, with 700 nearly each fetch causes one.

Memory: no message is part of a reference cycle. A closed connection, producer or consumer leaves cycles of 60 to 260
objects, a refused request 65. At most 10,000 such objects wait for a collection of the youngest generation. At most
250,000, and a quarter as many as the process keeps, wait for a full one.
"""


def tune_collector() -> None:
    """Excludes all objects that exist from garbage collection, and makes collections rarer.

    Called at the end of start-up, because each collection of the oldest generation visits all objects. The modules
    alone have about 100,000. Does nothing in a process whose collector is off, or whose threshold is as high already.
    `gc.unfreeze()` and `gc.set_threshold(700, 10, 10)` undo it.
    """
    if not gc.isenabled() or not 0 < gc.get_threshold()[0] < THRESHOLDS[0]:
        return
    gc.collect()  # frozen garbage would stay
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
