"""Plays scenarios on both sides, several at a time, each side of each in a worker process with a time limit."""

from __future__ import annotations

import logging
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Final, TypeAlias

import msgspec

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka.kafka.connecting import connection_failure
from tests.compat.harness.admin import Admin, AdminError, LayerAdmin, PulsarRest
from tests.compat.harness.compare import Comparison, CompatReport, ScenarioVerdict, compare, stale_explanations
from tests.compat.harness.driver import SILENCE_MS, Target, administrator
from tests.compat.harness.history import Ending, Side, SideResult, read_result
from tests.compat.harness.java import JavaAddress, JavaRuntime, JavaUnavailable
from tests.compat.harness.scenario import PulsarClient, Scenario
from tests.compat.harness.secured import NOT_GIVEN
from tests.compat.harness.worker import Job

JOBS: Final = 8
"""Workers at a time. They mostly wait; with more of them two cores are late for what has a deadline."""

PATIENT_SILENCE_MS: Final = 3_000
"""Silence of a second play."""
MAX_REPEATS: Final = 5
"""Second plays of a run. If more scenarios differ, a busy machine is not why."""

_Pair: TypeAlias = "tuple[Scenario, Future[SideResult], Future[SideResult]]"
"""A scenario that is being played on Pulsar and on Kafka."""
_CLOCK: Final = SystemClock()
_OUTPUT_LINES: Final = 15


_LOOK_S: Final = 3.0
_NAMES: Final = {Side.PULSAR: "Pulsar", Side.KAFKA: "Kafka"}
_log: Final = logging.getLogger(__name__)


class NoAnswer(Exception):
    """A cluster that scenarios are to be played on does not answer."""


@contextmanager
def _administrating(target: Target) -> Iterator[Admin]:
    admin = administrator(target)
    try:
        yield admin
    finally:
        if isinstance(admin, LayerAdmin):
            admin.close()


@dataclass(frozen=True, slots=True)
class Session:
    """Both sides and how to play. `folders` hold scenarios of the user's own.

    `secured` are both sides of the scenarios about security, or one line on why there are none. `java_jars` is a folder
    with the jars of Pulsar's Java client; the JVM is started only for scenarios that want it.
    """

    pulsar: Target
    kafka: Target
    folders: Sequence[Path] = ()
    jobs: int = JOBS
    secured: tuple[Target, Target] | str = NOT_GIVEN
    java_jars: Path | None = None

    def ask_all(self) -> None:
        """Raises NoAnswer: one of the clusters does not answer, or has no such namespace."""
        for target in self._targets():
            listening = target.url.partition("://")[2].rstrip("/")
            silent = connection_failure(listening, _LOOK_S) if target.side is Side.PULSAR else ""
            if silent:
                raise NoAnswer(f"{_NAMES[target.side]} does not answer at {target.url}: {silent}")
            try:
                with _administrating(target) as admin:
                    admin.list_topics(target.namespace)
            except (AdminError, PulsarException) as failure:
                at = f"{_NAMES[target.side]} at {target.admin_url or target.url}"
                raise NoAnswer(f"{at} does not list {target.namespace}: {failure}") from failure

    def pulsar_version(self) -> str:
        """Raises NoAnswer: its REST API does not say."""
        try:
            return PulsarRest(self.pulsar.admin_url).version()
        except AdminError as failure:
            raise NoAnswer(f"Pulsar at {self.pulsar.admin_url} does not say its version: {failure}") from failure

    def _targets(self) -> Sequence[Target]:
        return (self.pulsar, self.kafka, *(() if isinstance(self.secured, str) else self.secured))

    def _remove_what_is_left(self, run_id: str) -> None:
        """The topics and namespaces of workers that were killed."""
        for target in self._targets():
            if not target.clean:
                continue
            try:
                with _administrating(target) as admin:
                    theirs = [name for name in admin.list_namespaces(target.tenant) if f"/{run_id}-" in name]
                    for namespace in (target.namespace, *theirs):
                        for topic in admin.list_topics(namespace):
                            if f"/{run_id}-" in topic:
                                admin.delete_topic(topic, force=True)
                    for namespace in theirs:
                        admin.delete_namespace(namespace)
            except (AdminError, PulsarException) as failure:
                _log.warning("topics named %s-... may be left on %s: %s", run_id, target.url, failure)

    def run(
        self,
        scenarios: Sequence[Scenario],
        known: Mapping[str, Scenario],
        explanations: Mapping[str, str],
        progress: Callable[[Comparison], None] = lambda _: None,
        version: str = "",
    ) -> CompatReport:
        """Play `scenarios` of the `known` ones; `progress` hears of each as it is finished. `version` is Pulsar's.

        Scenarios that differ are played once more, one by one and with more patience, unless there are more than
        `MAX_REPEATS`: on a busy machine what should come may not come in time.
        """
        started = _CLOCK.monotonic()
        run_id = f"compat-{secrets.token_hex(4)}"
        try:
            with Stage(self.folders, self.jobs, self.java_jars, scenarios) as stage:
                pairs = [
                    self._play(stage, scenario, f"{run_id}-{number}")
                    for number, scenario in enumerate(longest_first(scenarios))
                ]
                comparisons = [_settled(pair, explanations, progress) for pair in pairs]
                differing = [found.scenario for found in comparisons if found.verdict is ScenarioVerdict.DIFFER]
                repeated = differing if len(differing) <= MAX_REPEATS else []
                for number, scenario in enumerate(repeated):
                    pair = self._play(stage, scenario, f"{run_id}-again-{number}", PATIENT_SILENCE_MS)
                    again = _settled(pair, explanations, lambda _: None)
                    comparisons = [again if found.scenario is scenario else found for found in comparisons]
        except BaseException:  # also when it is interrupted
            self._remove_what_is_left(run_id)
            raise
        comparisons.sort(key=lambda found: found.scenario.name)
        return CompatReport(
            tuple(comparisons),
            stale_explanations(explanations, known, comparisons),
            self.pulsar.url,
            self.kafka.gateway or self.kafka.url,
            version,
            _CLOCK.monotonic() - started,
            tuple(sorted(scenario.name for scenario in repeated)),
        )

    def _play(self, stage: Stage, scenario: Scenario, unique: str, silence_ms: int = SILENCE_MS) -> _Pair:
        """Begin both sides of a scenario."""
        pulsar, kafka = (
            stage.play(scenario, self._target(scenario, side, stage, silence_ms), f"{unique}-{letter}")
            for letter, side in (("p", Side.PULSAR), ("k", Side.KAFKA))
        )
        return scenario, pulsar, kafka

    def _target(self, scenario: Scenario, side: Side, stage: Stage, silence_ms: int) -> Target | str:
        """Where a side of it is played, or why it is not."""
        if scenario.client is PulsarClient.JAVA and isinstance(stage.java, str):
            return stage.java
        both = self.secured if scenario.secured else (self.pulsar, self.kafka)
        return both if isinstance(both, str) else replace(both[side is Side.KAFKA], silence_ms=silence_ms)


def longest_first(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """What may take longest begins first, or the end of the run is spent waiting for it."""
    return sorted(scenarios, key=lambda one: -one.time_limit_s)


class Stage:
    """Plays one side of scenarios in workers, several at a time, for the length of a `with`. An exception, also an
    interrupt, kills the workers."""

    def __init__(
        self,
        folders: Sequence[Path] = (),
        jobs: int = JOBS,
        java_jars: Path | None = None,
        scenarios: Iterable[Scenario] = (),
    ) -> None:
        """`folders` hold scenarios of the user's own. The JVM of the Java client starts only if one of `scenarios`
        requires it."""
        self.java: JavaAddress | str = "no scenario wants it"
        """Where the JVM of the Java client is, or why there is none."""
        self._folders = [str(folder.resolve()) for folder in folders]
        self._java_jars = java_jars
        self._wants_java = any(scenario.client is PulsarClient.JAVA for scenario in scenarios)
        self._workers = _Workers()
        self._pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="compat")
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        self._stack.enter_context(self._workers)
        if self._wants_java:
            try:
                self.java = self._stack.enter_context(JavaRuntime(self._java_jars)).address
            except JavaUnavailable as error:
                self.java = f"the Java client is not there: {error}"
        self._stack.enter_context(self._pool)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.kill()
        self._stack.close()

    def play(self, scenario: Scenario, target: Target | str, unique: str) -> Future[SideResult]:
        """Play it on `target`, with names that begin with `unique`; for a text it is not played, which is why."""
        return self._pool.submit(self.play_now, scenario, target, unique)

    def kill(self) -> None:
        """End what is played; what has not begun is not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._workers.kill()
        self._pool.shutdown()

    def play_now(self, scenario: Scenario, target: Target | str, unique: str) -> SideResult:
        """The same in the caller's thread, before what waits for its turn."""
        if isinstance(target, str):
            return SideResult(Ending.NOT_PLAYED, reason=target)
        driver = None
        if scenario.client is PulsarClient.JAVA and target.has_official_clients:
            if isinstance(self.java, str):
                return SideResult(Ending.NOT_PLAYED, reason=self.java)
            driver = self.java
        with tempfile.TemporaryDirectory(prefix="pok-compat-") as directory:
            result = Path(directory) / "result"
            output = Path(directory) / "output"
            job = Job(scenario.name, target, unique, str(result), str(output), self._folders, driver)
            started = _CLOCK.monotonic()
            status = self._workers.run(msgspec.json.encode(job), scenario.time_limit_s)
            played = _side_result(status, result, output, scenario.time_limit_s, _CLOCK.monotonic() - started)
            fallback = (scenario.client.value if target.has_official_clients else target.side.value,)
            return played if played.driven_by else replace(played, driven_by=fallback)


def _settled(
    pair: _Pair,
    explanations: Mapping[str, str],
    progress: Callable[[Comparison], None],
) -> Comparison:
    scenario, pulsar, kafka = pair
    found = compare(scenario, pulsar.result(), kafka.result(), explanations.get(scenario.name))
    progress(found)
    return found


class _Workers:
    """Processes that fork for each job: as many as play at a time, each with all that scenarios import."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[subprocess.Popen[bytes]] = []
        self._free: list[subprocess.Popen[bytes]] = []
        self._playing: set[int] = set()
        self._stopped = False

    def __enter__(self) -> _Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for worker in self._all:
            with worker:  # waited for
                pass

    def run(self, job: bytes, time_limit_s: float) -> int | None:
        """How the job's process ended; None when it was killed for being late."""
        worker = self._take()
        with self._lock:  # so that `kill` finds each that has begun
            if self._stopped:
                return None
            _tell(worker, job)
            process = _answer(worker)
            self._playing.add(process)
        late = not select.select([_said(worker)], [], [], time_limit_s)[0]
        if late:
            _kill(process)
        status = _answer(worker)
        with self._lock:
            self._playing.discard(process)
            self._free.append(worker)
        return None if late else status

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._free:
                return self._free.pop()
            command = [sys.executable, "-m", "tests.compat.harness.worker"]
            worker = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._all.append(worker)
        _answer(worker)  # it has imported everything
        return worker

    def kill(self) -> None:
        """End all of them with what they play, and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._playing:
                _kill(process)
            for worker in self._all:
                worker.kill()


def _tell(worker: subprocess.Popen[bytes], job: bytes) -> None:
    assert worker.stdin is not None
    worker.stdin.write(job + b"\n")


def _said(worker: subprocess.Popen[bytes]) -> IO[bytes]:
    assert worker.stdout is not None
    return worker.stdout


def _answer(worker: subprocess.Popen[bytes]) -> int:
    line = _said(worker).readline()
    if not line:
        raise RuntimeError(f"a worker of the harness ended with {worker.wait()}, see what it said")
    return int(line)


def _kill(process: int) -> None:
    """With whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ProcessLookupError):  # one that has just begun leads no group yet
        os.kill(process, signal.SIGKILL)


def _side_result(status: int | None, result: Path, output: Path, time_limit_s: float, seconds: float) -> SideResult:
    lines = result.read_text(encoding="utf-8").splitlines() if result.exists() else []
    events, last = read_result(lines)
    said = "\n".join(output.read_text(encoding="utf-8", errors="replace").splitlines()[-_OUTPUT_LINES:])
    if last is not None:
        detail = f"{last['detail']}\n{said}".strip() if last["detail"] else ""
        driven_by = tuple(last.get("driven_by", ()))
        return SideResult(Ending(last["ending"]), events, last["reason"], detail, seconds, driven_by)
    if status is None:
        return SideResult(Ending.TIMED_OUT, events, f"not finished after {time_limit_s:.0f} s", said, seconds)
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return SideResult(Ending.CRASHED, events, f"the worker ended with {how}", said, seconds)
