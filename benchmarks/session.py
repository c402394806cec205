"""Runs the plan: topics, workers in processes of their own, interleaved rounds."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.gateway_plan import GATEWAY_WORKERS
from benchmarks.many_plan import MANY_WORKERS
from benchmarks.model import OFFICIAL_SDK, OWN_SDK, Cell, Group, System
from benchmarks.plan import (
    CURSOR_WORKERS,
    DEATH_WORKERS,
    FLEET_WORKERS,
    HUNG_WORKERS,
    MAINTENANCE_WORKERS,
    REFUSING_WORKERS,
    SCHEMA_WORKERS,
    SERVICE_WORKERS,
    TRANSACTION_WORKERS,
)
from benchmarks.resident import Resident
from benchmarks.worker import RESULT, WorkerFailed

_WORKER_TIMEOUT_S: Final = 900.0
SDKS: Final = {System.LAYER: OWN_SDK, System.PULSAR: OFFICIAL_SDK, System.GATEWAY: OFFICIAL_SDK}
_WARM_UP_DIVISOR: Final = 10
_Filled = dict[tuple[str, int, int, int], str]
_Measure = Callable[[Cell, int, dict[str, Any]], dict[str, Any]]
"""A cell, a number of messages, and arguments beside the cell's own -> its figures. Raises WorkerFailed."""
_SUBSCRIBING: Final = {"receive", "perf_receive", "holes", "ack_rate"}


@dataclass(slots=True)
class Outcome:
    """The counted rounds of one cell; `failure` is why there are none."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    failure: str | None = None


def run_worker(module: str, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.worker", module, function, json.dumps(arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WORKER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise WorkerFailed(f"no result within {_WORKER_TIMEOUT_S:.0f} s") from late
    for line in done.stdout.splitlines():
        if done.returncode == 0 and line.startswith(RESULT):
            return dict(json.loads(line[len(RESULT) :]))
    words = [line for line in done.stderr.splitlines() if line.strip()] or [f"ended with {done.returncode}"]
    raise WorkerFailed(words[-1])


@dataclass(frozen=True, slots=True)
class Session:
    """The running systems, none for cells that need no server.

    `settings` are the layer's librdkafka settings, `producer` and `consumer`.
    """

    bootstrap: str
    pulsar_url: str | None
    settings: dict[str, dict[str, Any]]
    scale: int  # 10 for --quick
    with_layer: bool = True
    pulsar_admin_url: str | None = None
    gateway_url: str | None = None

    def run(self, group: Group, cells: Iterable[Cell]) -> dict[str, Outcome]:
        """A dropped round at a tenth, then the rounds; every other one goes through the cells backwards."""
        chosen = list(cells)
        outcomes = {cell.name: Outcome() for cell in chosen}
        rates: dict[str, float] = {}
        with ExitStack() as stack:
            measure = self._in_processes_of_their_own()
            if group.resident is not None:
                measure = self._in_one_process(stack.enter_context(Resident(group.resident, _WORKER_TIMEOUT_S)))
            for number in range(group.rounds + 1):
                for cell in chosen if number % 2 else reversed(chosen):
                    outcome = outcomes[cell.name]
                    if outcome.failure is None and (not cell.paced_by or cell.paced_by in rates):
                        pace = {"rate": rates[cell.paced_by]} if cell.paced_by else {}
                        result = self._once(cell, outcome, measure, pace, warm_up=number == 0)
                        rates.update({cell.name: result["per_s"]} if "per_s" in result else {})
        return outcomes

    def _in_processes_of_their_own(self) -> _Measure:
        filled: _Filled = {}

        def measure(cell: Cell, messages: int, more: dict[str, Any]) -> dict[str, Any]:
            return run_worker(self._module(cell), cell.worker, self._arguments(cell, messages, filled) | more)

        return measure

    def _in_one_process(self, resident: Resident) -> _Measure:
        """It makes and fills its topics itself."""

        def measure(cell: Cell, messages: int, more: dict[str, Any]) -> dict[str, Any]:
            arguments = {"url": self._url(System.LAYER), "messages": messages, **cell.args, **more}
            return resident.call(cell.worker, arguments)

        return measure

    def _once(
        self, cell: Cell, outcome: Outcome, measure: _Measure, more: dict[str, Any], *, warm_up: bool
    ) -> dict[str, Any]:
        """The figures; none when it failed."""
        messages = max(min(100, cell.messages), cell.messages // self.scale // (_WARM_UP_DIVISOR if warm_up else 1))
        try:
            result = measure(cell, messages, more)
        except WorkerFailed as failure:
            outcome.failure = str(failure)
            return {}
        if not warm_up:
            outcome.rounds.append({**result, "messages": messages})
        return result

    def _module(self, cell: Cell) -> str:
        if cell.worker in CURSOR_WORKERS:
            return "cursor_workers"
        if cell.worker in FLEET_WORKERS:
            return "fleet_workers"
        if cell.worker in HUNG_WORKERS:
            return "hung_workers"
        if cell.worker in REFUSING_WORKERS:
            return "refusing_workers"
        if cell.worker in DEATH_WORKERS:
            return "death_workers"
        if cell.worker in SCHEMA_WORKERS:
            return "schema_workers"
        if cell.worker in TRANSACTION_WORKERS:
            return "transaction_workers"
        if cell.worker in SERVICE_WORKERS:
            return "service_workers"
        if cell.worker in GATEWAY_WORKERS:
            return "gateway_workers"
        if cell.worker in MANY_WORKERS:
            return "many_workers"
        if cell.worker in MAINTENANCE_WORKERS:
            return "maintenance_workers"
        return "raw_workers" if cell.system is System.RAW else "sdk_workers"

    def _arguments(self, cell: Cell, messages: int, filled: _Filled) -> dict[str, Any]:
        if cell.worker in SCHEMA_WORKERS:
            return {"messages": messages, **cell.args}
        topic = self._filled_topic(cell, messages, filled) if cell.reads else self._fresh_topic(cell.system)
        arguments: dict[str, Any] = {"topic": topic, "messages": messages, **cell.args}
        if cell.system is not System.RAW:
            arguments |= {"sdk": SDKS[cell.system], "url": self._url(cell.system)}
            if cell.worker == "holes":
                arguments["admin_url"] = self.pulsar_admin_url if cell.system is System.PULSAR else None
            return arguments | ({"subscription": f"s-{uuid.uuid4().hex}"} if cell.worker in _SUBSCRIBING else {})
        if cell.worker == "receive":
            return {**arguments, "config": self.settings["consumer"]}
        both = {"consumer_config": self.settings["consumer"]} if cell.worker != "produce" else {}
        return {**arguments, "config": self.settings["producer"], **both}

    def _url(self, system: System) -> str:
        if system is System.PULSAR:
            return self.pulsar_url or ""
        if system is System.GATEWAY:
            return self.gateway_url or ""
        return f"kafka://{self.bootstrap}"

    def _fresh_topic(self, system: System) -> str:
        name = f"bench-{uuid.uuid4().hex}"
        return self._kafka_topic(name, make=True) if system is System.RAW else name

    def _filled_topic(self, cell: Cell, messages: int, filled: _Filled) -> str:
        """A topic with `messages` messages, filled once and shared by the cells that read from the same system."""
        size = int(cell.args.get("size", 200))
        filler = System.LAYER if cell.system is System.RAW else cell.system
        in_transaction = int(cell.args.get("in_transaction", 0))
        key = (filler.name, messages, size, in_transaction)
        if key not in filled:
            name = self._fresh_topic(System.RAW if filler is System.LAYER and not self.with_layer else filler)
            if filler is System.LAYER and not self.with_layer:
                fill = {"config": self.settings["producer"], "header": True}
                # The raw worker's warm-up goes to the topic as well; readers start at 0 and stop after `messages`.
                run_worker("raw_workers", "produce", {"topic": name, "messages": messages, "size": size, **fill})
            else:
                where = {"sdk": SDKS[filler], "url": self._url(filler), "topic": name}
                batching = bool(cell.args.get("batching", False))
                what = {**where, "messages": messages, "size": size}
                if in_transaction:
                    run_worker("sdk_workers", "produce_in_transactions", {**what, "in_transaction": in_transaction})
                else:
                    run_worker("sdk_workers", "produce", {**what, "batching": batching})
            filled[key] = name
        name = filled[key]
        return self._kafka_topic(name, make=False) if cell.system is System.RAW else name

    def _kafka_topic(self, fragment: str, *, make: bool) -> str:
        """The Kafka topic behind a Pulsar name; a new one is made by the layer itself, for the same topic settings."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        if make and not self.with_layer:
            admin.create_topics([NewTopic(fragment, 1, 1)])[fragment].result()
        elif make:
            where = {"sdk": OWN_SDK, "url": self._url(System.LAYER), "topic": fragment}
            run_worker("sdk_workers", "make_topic", where)
        found = [name for name in admin.list_topics(timeout=30).topics if fragment in name and "warm-up" not in name]
        if len(found) != 1:
            raise WorkerFailed(f"{len(found)} Kafka topics hold {fragment} in their names: {found}")
        return found[0]
