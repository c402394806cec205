"""A run plays classes of the suite on gateways of its own, and says what was not expected."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBroker, EmbeddedBrokerError
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.builds import Missing
from tests.compat.broker_tests.java_side import ClassDidNotEnd, JavaSide, classes_of_clients, java_side
from tests.compat.broker_tests.suite import BadSuite, Seen, Suite, read_suite

ARGUMENT: Final = "--broker-tests"
_CLUSTER: Final = "test"
"""As their set-up calls it."""
_CLOSE_S: Final = 60.0


def main(arguments: Sequence[str]) -> int:
    """0 when each test passed that is not listed, and each that is listed failed as listed."""
    parser = argparse.ArgumentParser(prog=f"make compat ARGS={ARGUMENT}")
    parser.add_argument("classes", nargs="*", help="ends of names of classes; left out: all of the suite")
    parser.add_argument(
        "--at-once", type=int, default=3, help="classes at the same time, each with a broker of its own"
    )
    parser.add_argument("--report", type=Path, help="a file for all that was seen, as JSON")
    asked = parser.parse_args(arguments)
    try:
        suite = read_suite()
        names = chosen(suite, asked.classes)
        with tempfile.TemporaryDirectory(prefix="pok-broker-tests-") as folder:
            run = _Run(suite, java_side(Path(folder)), asked.report, names)
            run.wrong += suite.not_named(classes_of_clients())
            with ThreadPoolExecutor(asked.at_once, thread_name_prefix="pok-broker-tests") as pool:
                try:
                    for done in [pool.submit(run.play) for _ in range(asked.at_once)]:
                        done.result()
                finally:
                    run.stop()
    except (BadSuite, EmbeddedBrokerError, Missing) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(summary(suite, {name: run.seen[name] for name in names if name in run.seen})))
    print("\n".join(run.wrong), file=sys.stderr)
    return 1 if run.wrong else 0


class _Run:
    """Classes that several threads play, each on a gateway of its own."""

    def __init__(self, suite: Suite, java: JavaSide, report: Path | None, names: Sequence[str]) -> None:
        self.seen: dict[str, list[Seen]] = {}
        self.wrong: list[str] = []
        self._suite = suite
        self._java = java
        self._report = report
        self._left = deque(names)
        self._saying = threading.Lock()

    def play(self) -> None:
        with _gateway() as (service_url, web_url):
            while self._left:
                try:
                    name = self._left.popleft()
                except IndexError:  # another thread has taken it
                    return
                begun = time.monotonic()
                try:
                    found = self._java.play(name, service_url, web_url)
                except ClassDidNotEnd as failure:
                    self.wrong.append(str(failure))
                else:
                    self._tell(name, found, time.monotonic() - begun)

    def stop(self) -> None:
        self._left.clear()
        self._java.stop()

    def _tell(self, name: str, found: list[Seen], took_s: float) -> None:
        with self._saying:
            self.seen[name] = found
            self.wrong += self._suite.wrong(name, found)
            passed = sum(each.passed for each in found)
            print(f"{name}: {passed} passed, {len(found) - passed} did not ({took_s:.0f} s)", flush=True)
            if self._report is not None:
                told = {each: [asdict(one) for one in self.seen[each]] for each in self.seen}
                self._report.write_text(json.dumps(told, indent=1), encoding="utf-8")


def chosen(suite: Suite, ends: Sequence[str]) -> list[str]:
    """Raises BadSuite: one of the ends fits no class."""
    for end in ends:
        if not any(name.endswith(end) for name in suite.classes):
            raise BadSuite(f"{end} is no class of the suite")
    return [name for name in suite.classes if not ends or name.endswith(tuple(ends))]


def summary(suite: Suite, seen: dict[str, list[Seen]]) -> Iterator[str]:
    """The figures of a run: by class in the form of a page's table, and by reason."""
    reasons: Counter[str] = Counter()
    passed = failed = 0
    yield "| class | passed | not |"
    yield "|---|---:|---:|"
    for name, found in seen.items():
        good = sum(each.passed for each in found)
        passed, failed = passed + good, failed + len(found) - good
        reasons += suite.reasons(name, found)
        yield f"| {name} | {good} | {len(found) - good} |"
    yield f"| {len(seen)} classes | {passed} | {failed} |"
    yield ""
    for why, times in reasons.most_common():
        yield f"{times:4} {why}"
    yield f"{passed} passed, {failed} did not"


@contextmanager
def _gateway() -> Iterator[tuple[str, str]]:
    """The addresses of a gateway, and of its REST, to a broker of this run's own: tests delete what is there."""
    with EmbeddedBroker() as broker, AdminClient(f"kafka://{broker.bootstrap}") as admin:
        admin.set_local_cluster(_CLUSTER)
        settings = GatewaySettings(port=0)
        gateway = Gateway(admin.node, settings)
        rest = RestServer(admin, gateway, settings)
        try:
            yield gateway.address(), rest.url()
        finally:
            rest.close()
            gateway.close(Deadline.after(_CLOSE_S))
