"""The last figures of each group are kept, so that a report can be put together from several sittings.

The cells of a group are measured beside each other in one session, and requirements compare within a group only: each
group stands for itself, with its time, its commit and the load of the machine it began under.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.plan import GROUPS
from benchmarks.session import Outcome

FOLDER: Final = Path("build/benchmarks")  # ignored by git


@dataclass(frozen=True, slots=True)
class Sitting:
    """The time, commit and load under which a group was measured."""

    began: str
    """UTC, to the minute."""
    commit: str
    load: float
    """Of one minute, when the group began."""

    @classmethod
    def now(cls) -> Sitting:
        asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False)
        began = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        return cls(began, told.stdout.strip() or "unknown", round(os.getloadavg()[0], 2))

    def __str__(self) -> str:
        return f"{self.began} UTC, commit {self.commit}, load {self.load:.2f} before"


@dataclass(frozen=True, slots=True)
class GroupResult:
    sitting: Sitting
    settings: Mapping[str, Mapping[str, Any]]
    """librdkafka's, as the layer gave them; empty where no server took part."""
    outcomes: Mapping[str, Outcome]
    """By `group/cell`."""


def keep(group: str, result: GroupResult, folder: Path = FOLDER) -> None:
    """In place of what the group gave before."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{group}.json.partial"
    partial.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    partial.replace(folder / f"{group}.json")


def kept(folder: Path = FOLDER) -> dict[str, GroupResult]:
    """By group, in the plan's order, those that were measured and still have the cells they had then."""
    found: dict[str, GroupResult] = {}
    for group in GROUPS:
        file = folder / f"{group.name}.json"
        if not file.exists():
            continue
        content = json.loads(file.read_text(encoding="utf-8"))
        outcomes = {name: Outcome(**each) for name, each in content["outcomes"].items()}
        if outcomes.keys() == {f"{group.name}/{cell.name}" for cell in group.cells}:
            found[group.name] = GroupResult(Sitting(**content["sitting"]), content["settings"], outcomes)
    return found
