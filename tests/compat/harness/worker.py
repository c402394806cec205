"""One side of one scenario, in a process of its own: `python -m compat.worker`, a `Job` a line on standard input.

This process imports everything, says so, and forks for each job: it says the process's id, and how that ended. Each is
a line with a number.
What happens goes to the job's file at once, a line an event, so that it is there after a crash or a kill; the last line
is how it ended. What libraries say goes to the file of its output.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from tests.compat.harness.driver import ScenarioRun, Target, not_supported
from tests.compat.harness.history import Ending, Event
from tests.compat.harness.java import JavaAddress
from tests.compat.harness.scenario import Scenario, load

_IMPORTED: Final = ("pulsar", "pulsar.asyncio", "pulsar.schema", "pulsar_on_kafka.asyncio", "py4j.java_gateway")
"""What scenarios import, where it is installed."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job for a worker. The target's options may hold secrets, so a job goes through a pipe."""

    scenario: str
    target: Target
    unique: str
    result: str
    output: str
    folders: list[str]
    java: JavaAddress | None = None
    """Where the JVM is, when the Java client drives this side."""


def main() -> int:
    for name in _IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    load()
    print(0, flush=True)
    for line in sys.stdin.buffer:
        child = os.fork()
        if not child:
            _play_alone(line)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0


def _play_alone(line: bytes) -> NoReturn:
    os.setsid()  # so that it is killed with whatever it started
    job = msgspec.json.decode(line, type=Job)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(job.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for there, here in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(there, here)
    status = 1
    try:
        _play_to_its_file(job)
        status = 0
    except BaseException:  # a mistake of the harness, which its output tells
        traceback.print_exc()
    finally:
        # What a library's own threads do at the interpreter's end is not what the scenario is about.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _play_to_its_file(job: Job) -> None:
    scenarios = load(Path(folder) for folder in job.folders)
    with Path(job.result).open("w", encoding="utf-8") as sink:

        def write(line: dict[str, Any]) -> None:
            sink.write(json.dumps(line, ensure_ascii=False) + "\n")
            sink.flush()

        write(_play(scenarios[job.scenario], job, lambda event: write({"what": event.what, "value": event.value})))


def _play(scenario: Scenario, job: Job, heard: Callable[[Event], None]) -> dict[str, Any]:
    done: dict[str, Any] = {"ending": Ending.DONE.value, "reason": "", "detail": ""}
    try:
        with ScenarioRun(job.target, job.unique, heard, job.java) as run:
            done["driven_by"] = run.driven_by
            scenario.play(run)
    except Exception as error:  # whatever a scenario raises is its side's result
        missing = not_supported(error)
        if missing is not None and not job.target.has_official_clients:
            return {**done, "ending": Ending.NOT_SUPPORTED.value, "reason": missing}
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return {**done, "ending": Ending.FAILED.value, "reason": reason, "detail": traceback.format_exc()}
    return done


if __name__ == "__main__":
    sys.exit(main())
