"""`python -m tests [chaos] [--second-look] [arguments of pytest]`: what `make test` and `make chaos` run, in phases,
each to its end.

Tests on a broker share four processes, a file always in one of them (all on Spark in the same one, and all on two
clusters), each process with a broker of its own: much of their time is waiting. Pure tests run beside them in two more,
and say what they have to say when they are over. Those marked `long` and `kills` are left to
`make chaos`: long ones in the same way, then those that kill and stop processes, or whole brokers, in two processes:
each of them starts many, so they have the machine to themselves. Tests of hypothesis draw a quarter of their
examples in `make test` (the profile `short`), and all of them in `make soak`.

With `--second-look` (CI) at most two tests that failed run once more, alone. What passes then is told as FLAKY, with
its first failure, and does not fail the run; it is a bug to be cured all the same. More than two, or failing again,
fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import BinaryIO, Final
from xml.etree import ElementTree

from tests.seeds import SHORT

ANY: Final = "not benchmark and not soak and not pulsar"
_SHOWN: Final = 15
"""Last lines of a failure that are said again at the end."""
_SECOND_LOOK: Final = "--second-look"
_CHAOS: Final = "chaos"
_FLAKY: Final = 2
"""Failed tests of a run that are given a second look; more than that is no accident."""
_TESTS_FAILED: Final = 1
"""pytest's exit code when it ran to its end and something failed."""
_BROKERS: Final = "4"
"""Processes with a broker of their own: one takes a twentieth of a core when it is idle, at some 460 topics."""
_KILLING: Final = "2"
"""Processes of tests that kill and stop, which start a dozen more at a time: with three, on two slow cores and beside a
busy loop, the load went up to 115, and what a test waits for came after its deadline."""
_BESIDE_TIMEOUT: Final = "timeout=900"
"""Of one pure test, which takes turns with many processes."""
_NOTHING_MISSING: Final = ("--require", "kafka", "--require", "spark")
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
    select_there: str = ""
    """-m for `folders`, if no other phase looks into them: then what needs no broker is run here, too."""
    options: Sequence[str] = ()
    """More of pytest's options."""
    beside: bool = False
    """It runs beside the next phase."""

    def start(self, arguments: Sequence[str], report: Path) -> PhaseRun:
        """Begin; what failed will be in `report`, as JUnit XML."""
        options = [*self.workers, f"--junitxml={report}", *arguments]
        if not self.beside:
            self._compile()
            print(f"\n=== {self.name}", flush=True)
            return PhaseRun(self, report, subprocess.Popen(self._command(options)))
        output = report.with_suffix(".out").open("w+b")
        command = [*self._command(options), "-o", _BESIDE_TIMEOUT]
        return PhaseRun(self, report, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT), output)

    def _compile(self) -> None:
        """Compile the test files, which each of the workers would do: 15 seconds of a core instead of 6."""
        if self.workers and not all(_is_compiled(folder) for folder in self.folders):
            command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", *self.folders]
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)

    def run_failed_again(self, arguments: Sequence[str]) -> int:
        """Those that failed in the last run with these arguments, one after the other; pytest's exit code."""
        print(f"\n=== {self.name}: those that failed, once more", flush=True)
        options = ["--last-failed", "--last-failed-no-failures", "none", *arguments]
        return subprocess.run(self._command(options), check=False).returncode

    def _command(self, arguments: Sequence[str]) -> list[str]:
        told = any(Path(argument.partition("::")[0]).exists() for argument in arguments)
        select = self.select if told else self.select_there or self.select
        command = [sys.executable, "-m", "pytest", "-m", f"{ANY} and {select}", *_NOTHING_MISSING]
        return [*command, *self.options, *arguments, *(() if told else self.folders)]


class PhaseRun:
    """A phase under way."""

    def __init__(
        self, phase: Phase, report: Path, process: subprocess.Popen[bytes], output: BinaryIO | None = None
    ) -> None:
        """`output`: where it writes to, unless it is seen at once."""
        self._phase = phase
        self.report = report
        self._process = process
        self._output = output
        self._start_s = time.monotonic()

    def wait(self) -> int:
        """pytest's exit code, when it is over; what it wrote has been shown by then."""
        code = self._process.wait()
        if self._output is not None:
            print(f"\n=== {self._phase.name}", flush=True)
            self._output.seek(0)
            shutil.copyfileobj(self._output, sys.stdout.buffer)
            sys.stdout.flush()
            self._output.close()
        print(f"=== {self._phase.name}: over {time.monotonic() - self._start_s:.0f} s after it began", flush=True)
        return code

    def end(self) -> None:
        """Kill it, if it is not over."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


_ON_A_BROKER: Final = ("tests/contract", "tests/integration", "tests/compat", "tests/clusters", "tests/spark")

PURE: Final = "not kafka and not spark"
_PURE_ALONE: Final = ("tests/unit", "tests/property", "tests/simulation")
PURE_FOLDERS: Final = (*_PURE_ALONE, *_ON_A_BROKER)
_FILES: Final = ("--dist", "loadfile")
"""A file in one process: what its tests share is made once."""


_MANY: Final = ("-n", "auto", "--maxprocesses", "8", *_FILES)
_FEW: Final = _MANY if (os.cpu_count() or 1) > 2 else ("-n", "2", *_FILES)
"""On two cores one process would still run for minutes when the tests on a broker are over."""


def _not_killing(which: str, select: str, workers: Sequence[str], options: Sequence[str] = ()) -> tuple[Phase, Phase]:
    """The pure ones of these, and beside them those that need a broker or Spark."""
    return (
        Phase(
            f"{which}pure tests",
            f"{select} and {PURE}",
            workers,
            _PURE_ALONE,
            beside=True,
            options=options,
        ),
        Phase(
            f"{which}tests on a broker and on Spark",
            f"{select} and (kafka or spark) and not kills",
            ("-n", _BROKERS, *_FILES),
            _ON_A_BROKER,
            select_there=f"{select} and not kills",
        ),
    )


PHASES: Final = _not_killing("", "not long", _FEW, ("--hypothesis-profile", SHORT))
CHAOS_PHASES: Final = (
    *_not_killing("long ", "long", _MANY),
    Phase("tests that kill and stop", "kafka and kills", ("-n", _KILLING, *_FILES), (*_ON_A_BROKER, "tests/chaos")),
)


def main(arguments: Sequence[str]) -> int:
    second_look = _SECOND_LOOK in arguments
    phases = CHAOS_PHASES if _CHAOS in arguments[:1] else PHASES
    arguments = [argument for argument in arguments[_CHAOS in arguments[:1] :] if argument != _SECOND_LOOK]
    codes: dict[str, int] = {}
    said: list[str] = []
    flaky = 0
    _compile_once()
    with tempfile.TemporaryDirectory(prefix="pok-tests-") as directory, ExitStack() as under_way:
        for phase, run, remembering in _runs(phases, arguments, Path(directory), under_way, second_look=second_look):
            codes[phase.name] = run.wait()
            failures = _failures(run.report)
            if second_look and codes[phase.name] == _TESTS_FAILED and flaky + len(failures) <= _FLAKY:
                codes[phase.name] = phase.run_failed_again(remembering)
                if codes[phase.name] == 0:
                    flaky += len(failures)
                    failures = [f"FLAKY, failed and then passed alone: {failure}" for failure in failures]
            said += failures
    if all(code == _NO_TESTS for code in codes.values()):
        print("no test was chosen")
        return _NO_TESTS
    failed = [name for name, code in codes.items() if code not in (0, _NO_TESTS)]
    print("\n".join(["", *said]))
    if flaky:
        print(f"FLAKY: {flaky} of the tests failed and then passed alone. Each is a bug: see above")
    print(f"failed: {', '.join(failed)}" if failed else "all phases passed")
    return 1 if failed else 0


def _compile_once() -> None:
    """Where Python is told to write no bytecode, hundreds of processes would compile all of their code at their start,
    which is half of what that takes: they keep it apart, in the environment, for this run and those to come."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(sys.prefix) / "bytecode")


def _is_compiled(folder: str) -> bool:
    """Whether pytest has compiled test files of the folder before."""
    test = next(Path(folder).rglob("test_*.py"))
    return any(Path(cache_from_source(str(test))).parent.glob(f"{test.stem}*-pytest-*.pyc"))


def _runs(
    phases: Sequence[Phase], arguments: Sequence[str], directory: Path, under_way: ExitStack, *, second_look: bool
) -> Iterator[tuple[Phase, PhaseRun, Sequence[str]]]:
    """Each phase as soon as it is begun, with its arguments; one that runs beside another comes behind that one."""
    beside: list[tuple[Phase, PhaseRun, Sequence[str]]] = []
    for number, phase in enumerate(phases):
        report = directory / f"{number}.xml"
        remembering = [*arguments, "-o", f"cache_dir={report.with_suffix('.cache')}"] if second_look else arguments
        run = phase.start(remembering, report)
        under_way.callback(run.end)
        if phase.beside:
            beside.append((phase, run, remembering))
        else:
            yield phase, run, remembering
            yield from beside
            beside.clear()


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
