"""`python -m tests.compat --record`: plays scenarios on a real Pulsar alone and writes what they recorded.

The histories in `tests/compat/histories` are what `make test` compares with. With `--pulsar=5` they are those of Pulsar
5.0.1, of which only those are kept that are unlike 4.0.7's. A scenario that does not end well on
Pulsar is played once more, alone; if that does not help, the histories stay as they are.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded import EmbeddedBrokerError
from tests.compat.harness.driver import Target
from tests.compat.harness.history import Ending, Side, SideResult
from tests.compat.harness.java import known_jars
from tests.compat.harness.recorded import OF_PULSAR_5, BadHistories, write_differing, write_histories
from tests.compat.harness.runner import JOBS, Stage, longest_first
from tests.compat.harness.scenario import Scenario, ScenarioError, built_in, choose
from tests.compat.pulsar_standalone import (
    PULSAR_4,
    PulsarOptions,
    PulsarRelease,
    PulsarStandalone,
    PulsarStandaloneError,
    release_of,
)
from tests.compat.secured import Authorities, secured_pulsar

ARGUMENT: Final = "--record"


def main(arguments: Sequence[str]) -> int:
    """0 when the histories were written."""
    parser = argparse.ArgumentParser(prog=f"make compat ARGS={ARGUMENT}")
    parser.add_argument("--scenario", metavar="PATTERN", help="only those whose name matches or holds this")
    parser.add_argument("--jobs", type=int, default=JOBS, help="worker processes at a time")
    parser.add_argument("--pulsar", metavar="VERSION", default=PULSAR_4.version, help="the release to play on")
    given = parser.parse_args(arguments)
    try:
        known = built_in()
        chosen = choose(known.values(), given.scenario)
        release = release_of(given.pulsar)
        results = _play(chosen, given.jobs, release)
        made_by = {"pulsar": release.version, "pulsar-client": metadata.version("pulsar-client")}
        if release is PULSAR_4:
            write_histories(results, known, made_by)
        else:
            differing = write_differing(results, known, made_by, OF_PULSAR_5)
            print(f"unlike {PULSAR_4.version}: {', '.join(differing) or 'none'}")
    except (ScenarioError, BadHistories, PulsarStandaloneError, EmbeddedBrokerError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(results)} of {len(known)} histories recorded")
    return 0


def _play(scenarios: Sequence[Scenario], jobs: int, release: PulsarRelease) -> dict[str, SideResult]:
    with ExitStack() as stack:
        pulsar = stack.enter_context(PulsarStandalone(PulsarOptions(release=release)))
        target = Target(Side.PULSAR, pulsar.service_url, pulsar.admin_url)
        secured = target
        if any(scenario.secured for scenario in scenarios):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pok-secured-")))
            side = stack.enter_context(secured_pulsar(Authorities(folder), release))
            secured = Target(Side.PULSAR, side.url, side.admin_url, logins=side.logins)
        jars = known_jars(release)
        played = _play_on(target, secured, scenarios, jobs, jars)
        bad = [scenario for scenario in scenarios if played[scenario.name].ending is not Ending.DONE]
        for scenario in bad:
            found = played[scenario.name]
            print(f"{scenario.name}, once more: {found.ending.value}: {found.reason}", file=sys.stderr, flush=True)
        return {**played, **_play_on(target, secured, bad, 1, jars)}


def _play_on(
    target: Target, secured: Target, scenarios: Iterable[Scenario], jobs: int, jars: Path | None
) -> dict[str, SideResult]:
    run_id = f"record-{secrets.token_hex(4)}"
    ordered = longest_first(scenarios)
    with Stage(jobs=jobs, java_jars=jars, scenarios=ordered) as stage:
        futures = {
            scenario.name: stage.play(scenario, secured if scenario.secured else target, f"{run_id}-{number}")
            for number, scenario in enumerate(ordered)
        }
        results: dict[str, SideResult] = {}
        for number, (name, future) in enumerate(futures.items(), 1):
            results[name] = future.result()
            if number % 20 == 0 or number == len(futures):
                print(f"{number} of {len(futures)} scenarios played", file=sys.stderr, flush=True)
    return results
