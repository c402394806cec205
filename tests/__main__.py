"""`python -m tests [--second-look] [arguments of pytest]`: what `make test` runs, in phases, each to its end.

Pure tests spread over the cores. Tests on a broker share three processes, a file always in one of them (all on Spark in
the same one, and all on two clusters), each process with a broker of its own: most of their time is waiting. Those that
kill and stop processes, or whole brokers, come after them, in as many: each of them starts many processes.

With `--second-look` (CI) at most two tests that failed run once more, alone. What passes then is told as FLAKY, with
its first failure, and does not fail the run; it is a bug to be cured all the same. More than two, or failing again,
fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

_ANY: Final = "not benchmark and not soak and not pulsar"
_SHOWN: Final = 15
"""Last lines of a failure that are said again at the end."""
_SECOND_LOOK: Final = "--second-look"
_FLAKY: Final = 2
"""Failed tests of a run that are given a second look; more than that is no accident."""
_TESTS_FAILED: Final = 1
"""pytest's exit code when it ran to its end and something failed."""
_BROKERS: Final = "3"
"""Processes with a broker of their own: with two, two cores stand idle for more than half of the time."""
_KILLERS: Final = "3"
_NO_TESTS: Final = 5
"""pytest's exit code for an empty selection, such as `-k` of one phase's test in the others."""


@dataclass(frozen=True)
class Phase:
    name: str
    select: str
    """pytest's -m."""
    workers: Sequence[str]
    """pytest-xdist's options."""
    folders: Sequence[str]
    """Where its tests are, unless the user says where. Each process reads all test files of these."""

    def run(self, arguments: Sequence[str], report: Path) -> int:
        """pytest's exit code; what failed is in `report`, as JUnit XML."""
        print(f"\n=== {self.name}", flush=True)
        return self._pytest([*self.workers, f"--junitxml={report}", *arguments])

    def run_failed_again(self, arguments: Sequence[str]) -> int:
        """Those that failed in the last run with these arguments, one after the other; pytest's exit code."""
        print(f"\n=== {self.name}: those that failed, once more", flush=True)
        return self._pytest(["--last-failed", "--last-failed-no-failures", "none", *arguments])

    def _pytest(self, arguments: Sequence[str]) -> int:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            f"{_ANY} and {self.select}",
            "--require",
            "kafka",
            "--require",
            "spark",
        ]
        where = () if any(Path(argument.partition("::")[0]).exists() for argument in arguments) else self.folders
        return subprocess.run([*command, *arguments, *where], check=False).returncode


_PURE: Final = ("tests/unit", "tests/property", "tests/simulation")
_ON_A_BROKER: Final = ("tests/contract", "tests/integration", "tests/clusters", "tests/spark", "tests/chaos")

PHASES: Final = (
    Phase("pure tests", "not kafka and not spark", ("-n", "auto", "--maxprocesses", "8"), (*_PURE, *_ON_A_BROKER[:-1])),
    Phase(
        "tests on a broker and on Spark",
        "(kafka or spark) and not kills",
        ("-n", _BROKERS, "--dist", "loadfile"),
        _ON_A_BROKER,
    ),
    Phase("tests that kill and stop", "kafka and kills", ("-n", _KILLERS, "--dist", "loadfile"), _ON_A_BROKER),
)


def main(arguments: Sequence[str]) -> int:
    second_look = _SECOND_LOOK in arguments
    arguments = [argument for argument in arguments if argument != _SECOND_LOOK]
    codes: dict[str, int] = {}
    said: list[str] = []
    flaky = 0
    with tempfile.TemporaryDirectory(prefix="pok-tests-") as directory:
        for number, phase in enumerate(PHASES):
            start_s = time.monotonic()
            report = Path(directory) / f"{number}.xml"
            remembering = [*arguments, "-o", f"cache_dir={report.with_suffix('.cache')}"] if second_look else arguments
            codes[phase.name] = phase.run(remembering, report)
            failures = _failures(report)
            if second_look and codes[phase.name] == _TESTS_FAILED and flaky + len(failures) <= _FLAKY:
                codes[phase.name] = phase.run_failed_again(remembering)
                if codes[phase.name] == 0:
                    flaky += len(failures)
                    failures = [f"FLAKY, failed and then passed alone: {failure}" for failure in failures]
            print(f"=== {phase.name}: {time.monotonic() - start_s:.0f} s", flush=True)
            said += failures
    if all(code == _NO_TESTS for code in codes.values()):
        print("no test was chosen")
        return _NO_TESTS
    failed = [name for name, code in codes.items() if code not in (0, _NO_TESTS)]
    print("\n".join(["", *said, f"failed: {', '.join(failed)}" if failed else "all phases passed"]))
    return 1 if failed else 0


def _failures(report: Path) -> list[str]:
    """One text for each test that failed: once more, briefly, for who sees the last lines only."""
    if not report.exists():  # pytest did not come so far
        return []
    found: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - written by pytest just now
        for bad in (*case.findall("failure"), *case.findall("error")):
            text = (bad.text or bad.get("message") or "").strip().splitlines()
            found.append("\n".join([f"{case.get('classname')}::{case.get('name')}", *text[-_SHOWN:], ""]))
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
