"""Scenarios played here, compared with what a real Pulsar recorded; a test plays those of an area."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import pytest

from pulsar_on_kafka.base.toml import tomllib
from tests.compat.harness.compare import OURS, ScenarioVerdict, compare, read_differences
from tests.compat.harness.driver import SILENCE_MS, Target
from tests.compat.harness.history import Ending, SideResult
from tests.compat.harness.java import known_jars
from tests.compat.harness.recorded import HOW_TO_RECORD, OF_PULSAR_5, read_histories
from tests.compat.harness.runner import MAX_REPEATS, PATIENT_SILENCE_MS, Stage
from tests.compat.harness.scenario import PulsarClient, Scenario
from tests.compat.pulsar_standalone import PULSAR_4, PULSAR_5

LONG: Final = Path(__file__).parent / "long.toml"
JOBS: Final = 4
"""Workers of a module at a time, beside those of other modules and other tests."""
_GROUP: Final = "group"


@dataclass(frozen=True)
class Group:
    """Scenarios that a test plays."""

    name: str
    scenarios: tuple[Scenario, ...]

    @property
    def by_java(self) -> bool:
        return any(scenario.client is PulsarClient.JAVA for scenario in self.scenarios)


def long_ones(side: str) -> Mapping[str, float]:
    """Scenarios that `make test` does not play on the `side` "sdk" or "gateway", and the seconds that they took."""
    return cast("Mapping[str, float]", tomllib.loads(LONG.read_text(encoding="utf-8"))[side])


def soak_ones(side: str) -> Container[str]:
    """Scenarios that only `make soak` plays on this side: half of those that are long on both sides. `make chaos` plays
    them on the other side."""
    both = sorted(set(long_ones("sdk")) & set(long_ones("gateway")))
    return both[side == "gateway" :: 2]


def groups(scenarios: Iterable[Scenario], side: str, *, by_client: bool = False) -> list[Any]:
    """Parameters of a test by area and length. With `by_client` those of the Java client, which may not be there, are
    groups of their own."""
    long, soak = long_ones(side), soak_ones(side)
    found: dict[tuple[str, str], list[Scenario]] = {}
    for scenario in scenarios:
        java = f"{scenario.area} by java" if by_client and scenario.client is PulsarClient.JAVA else scenario.area
        mark = "soak" if scenario.name in soak else "long" if scenario.name in long else ""
        found.setdefault((java, mark), []).append(scenario)
    return [
        pytest.param(
            Group(name, tuple(members)),
            id=f"{name} ({mark})" if mark else name,
            marks=[getattr(pytest.mark, mark)] if mark else [],
        )
        for (name, mark), members in found.items()
    ]


def chosen(request: pytest.FixtureRequest) -> list[Scenario]:
    """The scenarios of all chosen tests of the module, in their order."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path)
    played = (item.callspec.params[_GROUP] for item in items if hasattr(item, "callspec"))
    return [scenario for group in played if isinstance(group, Group) for scenario in group.scenarios]


class Replay:
    """Scenarios under way, by name, beside their recorded histories."""

    def __init__(self, stage: Stage, scenarios: Iterable[Scenario], plain: Target, secured: Target) -> None:
        self.java = stage.java
        """The JVM of the Java client, or why there is none."""
        self._stage = stage
        self._plain = plain
        self._secured = secured
        self._names = (f"replay-{secrets.token_hex(4)}-{number}" for number in itertools.count())
        explained = read_differences(OURS)
        self._references = [
            _Reference(release.version, histories, explained.beside(release.version, of_gateway=bool(plain.gateway)))
            for release, histories in ((PULSAR_4, read_histories()), (PULSAR_5, read_histories(OF_PULSAR_5)))
        ]
        self._repeats = 0
        self._played = {
            scenario.name: stage.play(scenario, self._target(scenario), next(self._names)) for scenario in scenarios
        }

    def _target(self, scenario: Scenario, silence_ms: int = SILENCE_MS) -> Target:
        return replace(self._secured if scenario.secured else self._plain, silence_ms=silence_ms)

    def problems(self, group: Group) -> list[str]:
        """One text for each scenario that does not do what Pulsar did, or is explained without need. What each took is
        printed (`pytest -rP`)."""
        return [text for scenario in group.scenarios if (text := self._problem_after_two(scenario))]

    def _problem_after_two(self, scenario: Scenario) -> str:
        """The problem of its second play, if the first one has a problem. The second is patient: on a busy machine what
        should come may not come in time, and the C++ client 3.13.0 dies if a dead letter is sent while it is closed."""
        problem = self._problem(scenario, self._played[scenario.name].result())
        if problem and self._repeats < MAX_REPEATS:
            self._repeats += 1
            print(f"played once more: {problem}")
            patient = self._target(scenario, PATIENT_SILENCE_MS)
            problem = self._problem(scenario, self._stage.play_now(scenario, patient, next(self._names)))
        return problem

    def _problem(self, scenario: Scenario, result: SideResult) -> str:
        """Its problems beside each release of Pulsar."""
        print(f"{result.seconds:6.2f} s {scenario.name}")
        return "\n".join(text for each in self._references if (text := each.problem(scenario, result)))


@dataclass(frozen=True)
class _Reference:
    """What one release of Pulsar did, and why we do something else."""

    version: str
    histories: Mapping[str, SideResult]
    explanations: Mapping[str, str]

    def problem(self, scenario: Scenario, result: SideResult) -> str:
        """Without a recorded history of 4.0.7 it differs; without one of 5.0.1 that one did what 4.0.7 did."""
        name = scenario.name
        recorded = self.histories.get(name)
        if recorded is None and self.version != PULSAR_4.version:
            return ""
        missing = SideResult(Ending.NOT_PLAYED, reason=f"no recorded history: {HOW_TO_RECORD.format(name)}")
        found = compare(scenario, recorded or missing, result, self.explanations.get(name))
        if found.verdict is ScenarioVerdict.AGREE and name in self.explanations:
            return f"{name}: explained in {OURS.name}, and differs no longer from Pulsar {self.version}"
        explained = found.verdict is ScenarioVerdict.EXPLAINED and found.kafka.ending is Ending.DONE
        if found.verdict is ScenarioVerdict.AGREE or explained:
            return ""
        title = f"{name}, beside Pulsar {self.version}: {found.verdict.value}: {found.reason}"
        return "\n".join([title, *found.diff, found.kafka.detail])


@contextmanager
def replay(scenarios: Iterable[Scenario], plain: Target, secured: Target) -> Iterator[Replay]:
    """Play all of them; those that have not begun at the end are not begun."""
    ordered = list(scenarios)
    clients_of = ordered if plain.has_official_clients else ()
    with Stage(jobs=JOBS, java_jars=known_jars(), scenarios=clients_of) as stage:
        try:
            yield Replay(stage, ordered, plain, secured)
        finally:
            stage.kill()
