"""The words in which the plan is written: cells, groups, requirements."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

MILLION: Final = 1_000_000
OWN_SDK: Final = "pulsar_on_kafka"
OFFICIAL_SDK: Final = "pulsar"
"""Modules that workers import as their SDK: this package's, and the official client."""


class System(Enum):
    """The systems that do the work of a cell."""

    LAYER = "layer"
    RAW = "raw confluent-kafka"
    PULSAR = "pulsar-client on Pulsar"
    CLIENT = "pulsar-client without a server"
    GATEWAY = "an official client on the gateway"


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One measured thing.

    `worker` names a function of the system's module (`sdk_workers`, `raw_workers`) and `args` are its arguments;
    `messages` is cut to a tenth by `--quick`. `reads` says that the topic is filled once, by the layer's own producer
    (the official one for Pulsar and the gateway), before the first round. `paced_by` is another cell of the group: its
    newest `per_s` is this one's argument `rate`; in a round that comes before there is one, this cell has no turn.
    """

    name: str
    system: System
    worker: str
    messages: int
    args: Mapping[str, Any] = field(default_factory=dict)
    reads: bool = False
    paced_by: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Cells whose rounds are interleaved. One more round at a tenth of the messages warms up and is dropped.

    `resident` names the module of the workers where all cells run in one process, which stays for the whole group.
    """

    name: str
    title: str
    rounds: int
    cells: tuple[Cell, ...]
    resident: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A report of some groups: `part` names them, with * and ?, several between commas."""

    path: str
    part: str

    def has(self, group: Group) -> bool:
        return any(fnmatch.fnmatch(group.name, each) for each in self.part.split(","))


class Rule(Enum):
    RATIO_AT_LEAST = "at least {} x"
    RATIO_AT_MOST = "at most {} x"
    ADDS_AT_MOST = "adds less than {}"
    BELOW = "below {}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """`metric` of cell `ours`, compared with the same metric of cell `beside`. Cells are named `group/cell`.

    Medians over the rounds are compared; `BELOW` takes the worst round. `until_cores_end`: it is about how something
    grows, and says nothing where the machine had no more to give (`cores_busy`).
    """

    text: str
    ours: str
    metric: str
    rule: Rule
    threshold: float
    beside: str | None = None
    until_cores_end: bool = False
