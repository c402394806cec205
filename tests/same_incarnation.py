"""The check of a topic that is never deleted, for tests of what reads it without a broker."""

from __future__ import annotations

import math
from typing import Any, Final, cast

from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationCheck


class _SameIncarnation:
    due_s = math.inf

    def before_delivery(self) -> None: ...
    def while_idle(self) -> None: ...
    def now(self, deadline: object) -> None: ...


SAME_INCARNATION: Final = cast("IncarnationCheck", cast("Any", _SameIncarnation()))
