"""Two sides of a scenario, compared."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from pulsar_on_kafka.base.toml import tomllib
from tests.compat.harness.history import Ending, SideResult
from tests.compat.harness.scenario import Scenario


class ScenarioVerdict(str, Enum):
    """The result of a scenario: the histories of both sides, compared."""

    AGREE = "agree"
    DIFFER = "differ"
    EXPLAINED = "explained"
    """They differ, and the file of explained differences says why that is wanted."""
    NOT_SUPPORTED = "not supported"
    NOT_PLAYED = "not played"
    """What the scenario needs is not here; the reason says what."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`reason` is why: the explanation, what is not supported, or the first difference."""

    scenario: Scenario
    verdict: ScenarioVerdict
    pulsar: SideResult
    kafka: SideResult
    reason: str = ""

    @property
    def diff(self) -> list[str]:
        """A unified diff, Pulsar's history to ours; empty where they agree."""
        return list(
            difflib.unified_diff(self.pulsar.lines(), self.kafka.lines(), "Pulsar", "Kafka", n=100, lineterm="")
        )


@dataclass(frozen=True, slots=True)
class CompatReport:
    """All scenarios of a run, by name. `stale` are explanations of what did not differ, each with why."""

    comparisons: tuple[Comparison, ...]
    stale: tuple[str, ...] = ()
    pulsar: str = ""
    kafka: str = ""
    version: str = ""
    """The version of Pulsar."""
    seconds: float = 0.0
    repeated: tuple[str, ...] = ()
    """The scenarios that differed at first and were played once more; the comparisons are of the second play."""

    def driven(self) -> Counter[str]:
        """How many scenarios were played with which of Pulsar's clients, such as "python" or "java + rest"."""
        return Counter(" + ".join(found.pulsar.driven_by) for found in self.comparisons if found.pulsar.driven_by)

    def count(self, verdict: ScenarioVerdict) -> int:
        return sum(found.verdict is verdict for found in self.comparisons)

    @property
    def agreement(self) -> float:
        """The part of all scenarios that agree, 0 to 1; 1 when there are none."""
        return self.count(ScenarioVerdict.AGREE) / len(self.comparisons) if self.comparisons else 1.0

    @property
    def ok(self) -> bool:
        """Nothing differs that is not explained."""
        return self.count(ScenarioVerdict.DIFFER) == 0

    def areas(self) -> dict[str, Counter[ScenarioVerdict]]:
        found: dict[str, Counter[ScenarioVerdict]] = {}
        for comparison in self.comparisons:
            found.setdefault(comparison.scenario.area, Counter())[comparison.verdict] += 1
        return dict(sorted(found.items()))


def compare(scenario: Scenario, pulsar: SideResult, kafka: SideResult, explanation: str | None = None) -> Comparison:
    """The verdict. Two sides that failed alike still differ: such a scenario shows nothing."""
    for side in (pulsar, kafka):
        if side.ending is Ending.NOT_PLAYED:
            return Comparison(scenario, ScenarioVerdict.NOT_PLAYED, pulsar, kafka, side.reason)
    if kafka.ending is Ending.NOT_SUPPORTED:
        return Comparison(scenario, ScenarioVerdict.NOT_SUPPORTED, pulsar, kafka, kafka.reason)
    difference = _difference(pulsar, kafka)
    if difference is None:
        return Comparison(scenario, ScenarioVerdict.AGREE, pulsar, kafka)
    if explanation is not None and pulsar.ending is Ending.DONE:
        return Comparison(scenario, ScenarioVerdict.EXPLAINED, pulsar, kafka, explanation)
    return Comparison(scenario, ScenarioVerdict.DIFFER, pulsar, kafka, difference)


def stale_explanations(
    explanations: Mapping[str, str], known: Iterable[str], comparisons: Sequence[Comparison]
) -> tuple[str, ...]:
    """Explanations of unknown scenarios, and of scenarios that were played and agree."""
    names = set(known)
    agreeing = {found.scenario.name for found in comparisons if found.verdict is ScenarioVerdict.AGREE}
    return tuple(
        [f"{name}: there is no such scenario" for name in sorted(explanations) if name not in names]
        + [f"{name}: differs no longer" for name in sorted(explanations) if name in agreeing]
    )


def _difference(pulsar: SideResult, kafka: SideResult) -> str | None:
    for name, side in (("Pulsar", pulsar), ("Kafka", kafka)):
        if side.ending is not Ending.DONE:
            return f"{side.ending.value} on {name}: {side.reason}"
    theirs, ours = pulsar.lines(), kafka.lines()
    if not theirs and not ours:
        return "nothing was recorded"
    for mine, other in zip(theirs, ours, strict=False):
        if mine != other:
            return f"Pulsar {mine} | Kafka {other}"
    if len(theirs) != len(ours):
        longer, name = (theirs, "Pulsar") if len(theirs) > len(ours) else (ours, "Kafka")
        return f"only on {name}: {longer[min(len(theirs), len(ours))]}"
    return None


OURS: Final = Path(__file__).parents[1] / "scenarios" / "differences.toml"
"""The reasons for the differences that this package has."""


class BadDifferences(Exception):
    """A file of explained differences that cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Explained differences: reasons by the scenario's name, for each table of a file; "" is the file itself."""

    tables: Mapping[str, Mapping[str, str]]

    def beside(self, version: str, *, of_gateway: bool = False) -> dict[str, str]:
        """The reasons beside Pulsar of this version, such as "5.0.1": those of all versions, and those of its own."""
        side = "gateway" if of_gateway else ""
        own = f"pulsar-{version.partition('.')[0]}"
        return {**self.tables.get(side, {}), **self.tables.get(f"{own}.{side}".rstrip("."), {})}


def read_differences(file: Path) -> Differences:
    """Reasons from a TOML file of `"area.scenario" = "why this difference is wanted"`.

    Those of a gateway stand in its table `gateway`. Those beside Pulsar 5 alone stand in the tables `pulsar-5` and
    `pulsar-5.gateway`, and those beside another major version in tables of its name.

    Raises:
        BadDifferences: the file is not there, is no TOML, or holds something else than reasons.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadDifferences(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadDifferences(f"{file} is no TOML: {error}") from error
    tables = {"": found, **_taken_out(file, found, "gateway")}
    for name in [name for name in found if re.fullmatch(r"pulsar-\d+", name)]:
        tables |= _taken_out(file, found, name)
        tables |= {f"{name}.{inner}": table for inner, table in _taken_out(file, tables[name], "gateway").items()}
    for table in tables.values():
        for name, reason in table.items():
            if not isinstance(reason, str) or not reason.strip():
                raise BadDifferences(f'{file}: expected "{name}" = "a reason", got {reason!r:.60}')
    return Differences(tables)


def _taken_out(file: Path, tables: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """The table of this name by its name, if there is one; it is no longer in `tables`."""
    if name not in tables:
        return {}
    table = tables.pop(name)
    if not isinstance(table, dict):
        raise BadDifferences(f"{file}: expected {name} to be a table of reasons, got {table!r:.60}")
    return {name: table}
