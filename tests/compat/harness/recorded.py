"""Recorded histories: what a real Pulsar did in each scenario, as JSON, one file an area.

Those of Pulsar 4.0.7 are whole. Those of a later release are in a folder of its own, and are only of scenarios in which
it did something else than 4.0.7.

An event is a line of its file, and scenarios are sorted, so that a change of one fact is a change of one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.compat.harness.history import Ending, Event, SideResult
from tests.compat.harness.scenario import Scenario

HISTORIES: Final = Path(__file__).parents[1] / "histories"
HOW_TO_RECORD: Final = "make compat ARGS=\"--record --scenario '{}'\""


OF_PULSAR_5: Final = HISTORIES / "pulsar-5"


class BadHistories(Exception):
    """Recorded histories that cannot be used; the message is one line."""


def read_histories(folder: Path = HISTORIES) -> dict[str, SideResult]:
    """The histories by the scenario's name.

    Raises:
        BadHistories: a file that is not as `write_histories` makes them.
    """
    found: dict[str, SideResult] = {}
    for file in sorted(folder.glob("*.json")):
        for name, recorded in _contents(file)["scenarios"].items():
            events = tuple(Event(what, value) for what, value in recorded["events"])
            found[name] = SideResult(Ending.DONE, events, driven_by=tuple(recorded["driven_by"]))
    return found


def write_histories(
    results: Mapping[str, SideResult],
    known: Mapping[str, Scenario],
    made_by: Mapping[str, str],
    folder: Path = HISTORIES,
) -> None:
    """Write the results of some scenarios. The histories of the others stay, those of unknown scenarios go.

    `made_by` has the versions of what `results` were recorded with.

    Raises:
        BadHistories: a result of a scenario that did not end well, or an area whose other histories were recorded with
            other versions.
    """
    for name, result in results.items():
        if result.ending is not Ending.DONE:
            raise BadHistories(f"{name} cannot be recorded: {result.ending.value}: {result.reason}")
    kept = {name: result for name, result in read_histories(folder).items() if name in known and name not in results}
    files: dict[Path, str] = {}
    for area in sorted({known[name].area for name in (*kept, *results)}):
        file = folder / f"{_file_name(area)}.json"
        if file in files:
            raise BadHistories(f"the area {area!r} has the file of another one: {file.name}")
        of_area = {name: found for name, found in {**kept, **results}.items() if known[name].area == area}
        if (stays := sorted(name for name in of_area if name in kept)) and _contents(file)["made_by"] != made_by:
            raise BadHistories(
                f"{stays[0]} was recorded with {_contents(file)['made_by']}: record all of {area!r} anew"
            )
        files[file] = "\n".join(_lines(of_area, made_by)) + "\n"
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.json"):
        if file not in files:
            file.unlink()
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")


def write_differing(
    results: Mapping[str, SideResult],
    known: Mapping[str, Scenario],
    made_by: Mapping[str, str],
    folder: Path,
    whole: Path = HISTORIES,
) -> list[str]:
    """The same for a later release: of the results those that differ from the histories in `whole`; gives their names.

    Raises:
        BadHistories: as `write_histories`.
    """
    before = read_histories(whole)
    differing = {
        name: result for name, result in results.items() if name not in before or result.lines() != before[name].lines()
    }
    kept_or_differing = {name: each for name, each in known.items() if name not in results or name in differing}
    write_histories(differing, kept_or_differing, made_by, folder)
    return sorted(differing)


def unmatched(histories: Mapping[str, SideResult], known: Mapping[str, Scenario]) -> list[str]:
    """One line for each scenario without a history, and for each history without a scenario."""
    return [
        *(f"{name} has no recorded history: {HOW_TO_RECORD.format(name)}" for name in sorted(known.keys() - histories)),
        *(
            f"{name} has a recorded history and is no scenario: {HOW_TO_RECORD.format('*')}"
            for name in sorted(histories.keys() - known)
        ),
    ]


def _contents(file: Path) -> Any:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        found["made_by"], found["scenarios"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadHistories(f"{file} holds no recorded histories: {type(error).__name__}: {error}") from error
    return found


def _file_name(area: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", area.lower()).strip("_")


def _lines(results: Mapping[str, SideResult], made_by: Mapping[str, str]) -> Iterator[str]:
    yield f'{{"made_by": {_json(made_by)},'
    yield ' "scenarios": {'
    for name, result in sorted(results.items()):
        yield f'  {_json(name)}: {{"driven_by": {_json(result.driven_by)}, "events": ['
        for event in result.events:
            yield f"    {_json([event.what, event.value])}{'' if event is result.events[-1] else ','}"
        yield "  ]}" if name == max(results) else "  ]},"
    yield " }}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
