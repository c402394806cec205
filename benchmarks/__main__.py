"""`python -m benchmarks [--only PATTERN] [--quick | --kept] [--pulsar VERSION] [--out FILE]`.

Exit status 1 when a requirement is not met.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, report
from benchmarks.gateways import gateway_to
from benchmarks.kept import GroupResult, Sitting, keep, kept
from benchmarks.many_plan import MANY_WORKERS
from benchmarks.model import OWN_SDK, Cell, Group, Page, System
from benchmarks.plan import GROUPS, PAGES, REQUIREMENTS, SCHEMA_WORKERS
from benchmarks.sdk_workers import plain
from benchmarks.session import Outcome, Session, run_worker
from benchmarks.verdict import Judgement, judge
from benchmarks.worker import WorkerFailed
from pulsar_on_kafka.embedded import EmbeddedBroker, EmbeddedBrokerError
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.compat.pulsar_standalone import (
    PULSAR_4,
    PulsarOptions,
    PulsarStandalone,
    PulsarStandaloneError,
    release_of,
)

_KEEP_MESSAGES: Final = {"defaultRetentionTimeInMinutes": "-1", "defaultRetentionSizeInMB": "-1"}
_ASSUMED_LINGER_MS: Final = 1


def main() -> int:
    arguments = _arguments()
    chosen = _choose(arguments.only, with_layer=not arguments.without_layer)
    if arguments.topics is not None:
        several = {group: with_topics(cells, arguments.topics) for group, cells in chosen.items()}
        chosen = {group: cells for group, cells in several.items() if cells}
    if not chosen:
        print(f"--only {arguments.only} matches no cell; they are: {', '.join(_all_cells())}", file=sys.stderr)
        return 2
    facts = machine.facts(arguments.pulsar)
    try:
        results = _kept(chosen) if arguments.kept else _measure(chosen, arguments)
    except (PulsarStandaloneError, EmbeddedBrokerError, WorkerFailed) as error:
        print(error, file=sys.stderr)
        return 1
    if not results:
        print(f"nothing was measured in full before, of {', '.join(group.name for group in chosen)}", file=sys.stderr)
        return 2
    pages: dict[Path | None, tuple[dict[str, GroupResult], str | None]] = {}
    is_partial = arguments.quick or arguments.without_layer or arguments.topics or _is_other(arguments)
    if arguments.out is None and not is_partial:
        pages = {Path(page.path): (found, page.part) for page, found in whole_pages(kept(), chosen)}
    bad = False
    for out, (found, part) in (pages or {arguments.out: (results, arguments.only)}).items():
        verdicts = [judge(requirement, _outcomes(found)) for requirement in REQUIREMENTS]
        if part:
            verdicts = [verdict for verdict in verdicts if verdict.ours is not None]
        bad |= _is_bad(verdicts, _outcomes(found))
        text = report.render(facts, found, verdicts, _notes(arguments, part))
        if out is None:
            print(text)
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        print(f"wrote {out}")
    return 1 if bad else 0


def whole_pages(
    known: Mapping[str, GroupResult], measured: Iterable[Group]
) -> Iterator[tuple[Page, dict[str, GroupResult]]]:
    """The pages that have a group which was measured now, and of which all are known: what was not measured now was
    measured before."""
    now = {group.name for group in measured}
    for page in PAGES:
        groups = {group.name for group in GROUPS if page.has(group)}
        if groups & now and groups <= known.keys():
            yield page, {name: result for name, result in known.items() if name in groups}


def _outcomes(results: Mapping[str, GroupResult]) -> dict[str, Outcome]:
    return {name: each for result in results.values() for name, each in result.outcomes.items()}


def _is_bad(verdicts: list[Judgement], outcomes: dict[str, Outcome]) -> bool:
    return any(verdict.met is False for verdict in verdicts) or any(outcome.failure for outcome in outcomes.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="groups or group/cell, with * and ?; several between commas")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="a tenth of the messages; not for claims")
    how.add_argument(
        "--kept",
        action="store_true",
        help="measure nothing, report what was measured in full before, of --only's groups",
    )
    parser.add_argument(
        "--topics",
        type=int,
        metavar="N",
        help="topics of each cell of the group `many`, instead of those in its name; not for claims",
    )
    parser.add_argument(
        "--pulsar",
        metavar="VERSION",
        default=PULSAR_4.version,
        help="the release that is the peer, instead of 4.0.7; its figures go to no page",
    )
    parser.add_argument(
        "--without-layer", action="store_true", help="only the peers, with the layer's librdkafka settings"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="default: each page under docs/benchmarks/ whose groups were all measured in full, now or before; "
        "without such a page, standard output",
    )
    arguments = parser.parse_args()
    try:
        arguments.pulsar = release_of(arguments.pulsar)
    except PulsarStandaloneError as error:
        parser.error(str(error))
    if arguments.topics is not None and (arguments.topics < 1 or arguments.quick or arguments.kept):
        parser.error(f"--topics is {arguments.topics}, expected at least 1, without --quick and --kept")
    if arguments.kept and (arguments.without_layer or _is_other(arguments)):
        parser.error("--kept measures nothing: it does not go with --without-layer and --pulsar")
    return arguments


def _is_other(arguments: argparse.Namespace) -> bool:
    """Whether the peer is not the release whose figures the pages have."""
    return arguments.pulsar is not PULSAR_4


def _all_cells() -> list[str]:
    return [f"{group.name}/{cell.name}" for group in GROUPS for cell in group.cells]


def _choose(pattern: str | None, *, with_layer: bool) -> dict[Group, list[Cell]]:
    patterns = None if pattern is None else [each.strip() for each in pattern.split(",")]

    def wanted(group: Group, cell: Cell) -> bool:
        if not with_layer and (cell.system in (System.LAYER, System.GATEWAY) or group.resident is not None):
            return False
        names = (group.name, f"{group.name}/{cell.name}")
        return patterns is None or any(fnmatch.fnmatch(name, each) for name in names for each in patterns)

    cells = {group: [cell for cell in group.cells if wanted(group, cell)] for group in GROUPS}
    return {group: kept for group, kept in cells.items() if kept}


def with_topics(cells: list[Cell], topics: int) -> list[Cell]:
    """The cells of `many` with so many topics, each worker once on each system; all other cells are left out."""
    found = {
        (cell.worker, cell.system): replace(cell, messages=topics)
        for cell in reversed(cells)
        if cell.worker in MANY_WORKERS
    }
    return list(reversed(found.values()))


def _kept(chosen: dict[Group, list[Cell]]) -> dict[str, GroupResult]:
    known = kept()
    return {group.name: known[group.name] for group in chosen if group.name in known}


def _measure(chosen: dict[Group, list[Cell]], arguments: argparse.Namespace) -> dict[str, GroupResult]:
    """Keeps each whole group as soon as it is measured, so that a sitting may be cut short."""
    results: dict[str, GroupResult] = {}
    all_cells = [cell for cells in chosen.values() for cell in cells]
    with_layer = not arguments.without_layer
    with ExitStack() as stack:
        bootstrap, settings = "", {}
        if any(cell.worker not in SCHEMA_WORKERS for cell in all_cells):
            bootstrap = stack.enter_context(EmbeddedBroker()).bootstrap
            settings = _settings(bootstrap, with_layer=with_layer)
        pulsar_url = admin_url = None
        if any(cell.system is System.PULSAR for cell in all_cells):
            options = PulsarOptions(extra=_KEEP_MESSAGES, release=arguments.pulsar)
            pulsar = stack.enter_context(PulsarStandalone(options))
            pulsar_url, admin_url = pulsar.service_url, pulsar.admin_url
        gateway_url = None
        if any(cell.system is System.GATEWAY for cell in all_cells):
            gateway_url = stack.enter_context(gateway_to(f"kafka://{bootstrap}")).url
        scale = 10 if arguments.quick else 1
        session = Session(bootstrap, pulsar_url, settings, scale, with_layer, admin_url, gateway_url)
        for group, cells in chosen.items():
            print(f"{group.name}: {group.title} ...", file=sys.stderr, flush=True)
            sitting = Sitting.now()
            outcomes = session.run(group, cells)
            for cell, outcome in outcomes.items():
                print(f"  {cell}: {outcome.failure or outcome.rounds}", file=sys.stderr, flush=True)
            named = {f"{group.name}/{cell}": outcome for cell, outcome in outcomes.items()}
            results[group.name] = GroupResult(sitting, settings, named)
            if not (arguments.quick or _is_other(arguments)) and cells == list(group.cells):
                keep(group.name, results[group.name])
    return results


def _settings(bootstrap: str, *, with_layer: bool) -> dict[str, dict[str, Any]]:
    if with_layer:
        probed = run_worker("sdk_workers", "probe", {"sdk": OWN_SDK, "url": f"kafka://{bootstrap}", "topic": "probe"})
        return {kind: probed[kind] for kind in ("producer", "consumer")}
    kafka = KafkaSettings(bootstrap)
    producer = kafka.producer(compression="none", message_timeout_ms=30_000, linger_ms=_ASSUMED_LINGER_MS)
    consumer = kafka.group_member(group_id="raw", client_id="raw", fetch_queue_kbytes=65_536, partitioned=True)
    return {"producer": plain(producer), "consumer": plain(consumer)}


def _notes(arguments: argparse.Namespace, part: str | None) -> list[str]:
    notes = []
    if arguments.quick:
        notes.append("A quick run, a tenth of the messages: not for claims.")
    if arguments.topics is not None:
        notes.append(f"{arguments.topics} topics in each cell of `many`: not for claims.")
    if part:
        notes.append(f"Part of the plan: `{part}`.")
    if _is_other(arguments):
        notes.append("The peer is another Pulsar than that of the pages; its Java client is still that of 4.0.7.")
    if arguments.without_layer:
        notes.append("The peers alone; linger.ms and the fetch queue are assumed, not asked of the layer.")
    return notes


if __name__ == "__main__":
    sys.exit(main())
